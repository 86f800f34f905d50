"""What ``ddpdoctor check`` can hand to a facet, made from the host, the pool and the targets that the user named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkup.examine import Inputs
from ddpdoctor.facets import BadTarget, NotRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.cluster.cluster import Cluster
    from ddpdoctor.examine.target import Target
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.pool import Jobs


@dataclass(frozen=True, slots=True)
class Named:
    """The targets that the user named; None for those that were not."""

    model: Target | None = None
    batch: Target | None = None
    loader: Target | None = None
    checkpoint: str | None = None


def supplies(
    facts: Facts, jobs: Callable[[], Jobs], named: Named, backend: str = "auto", cluster: Cluster | str | None = None
) -> Inputs:
    """Bind the names that facets use to what makes them.

    ``cluster`` is what was seen of several hosts, or why they are not seen here.
    """
    return Inputs(
        {
            "facts": lambda: facts,
            "jobs": jobs,
            "gpus": lambda: _gpus(facts),
            "backends": lambda: _backends(facts, backend),
            "model": _needs(named.model, "model", lambda model: _model(jobs, model, named.batch)),
            "model_given": lambda: named.model is not None,
            "loader": _needs(named.loader, "loader", lambda loader: _loader(jobs, loader)),
            "cluster": lambda: _cluster(cluster),
            "checkpoint": _needs(named.checkpoint, "checkpoint", _checkpoint),
        }
    )


def _needs(value: Any, option: str, make: Callable[[Any], Any]) -> Callable[[], Any]:
    def supply() -> Any:
        if value is None:
            raise NotRun(f"no --{option} given", wants=option)
        return make(value)

    return supply


def _gpus(facts: Facts) -> Any:
    if not facts.gpus.devices:
        raise NotRun(facts.gpus.error or "no NVIDIA GPU", wants="gpus")
    return facts.gpus


def _cluster(cluster: Cluster | str | None) -> Cluster:
    if cluster is None or isinstance(cluster, str):
        raise NotRun(cluster or "no launcher's variable says that several hosts take part")
    return cluster


def _backends(facts: Facts, backend: str) -> tuple[str, ...]:
    """Return the backends to test: gloo works everywhere, nccl wants GPUs."""
    if backend != "auto":
        return (backend,)
    return ("gloo", "nccl") if facts.gpus.devices else ("gloo",)


def _model(jobs: Callable[[], Jobs], model: Target, batch: Target | None) -> Any:
    from ddpdoctor.examine.model.exam import examine_model

    return examine_model(jobs(), model, batch)


def _loader(jobs: Callable[[], Jobs], loader: Target) -> Any:
    from ddpdoctor.examine.loader.exam import examine_loader

    return examine_loader(jobs(), loader)


def _checkpoint(path: str) -> Any:
    from ddpdoctor.checkpoint import inspect

    try:
        return inspect(path)
    except BadTarget as exc:
        raise BadTarget(f"--checkpoint {exc}") from None
