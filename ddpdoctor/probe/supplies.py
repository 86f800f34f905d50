"""What ``ddpdoctor check`` can hand to a facet, made from the host, the pool and the targets that the user named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.check import BadTarget, NotRun
from ddpdoctor.probe.checkup import Supplies

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.probe.facts import Facts
    from ddpdoctor.probe.jobs import Jobs
    from ddpdoctor.probe.target import Target


@dataclass(frozen=True, slots=True)
class Named:
    """The targets that the user named; None for those that were not."""

    model: Target | None = None
    batch: Target | None = None
    loader: Target | None = None
    checkpoint: str | None = None


def supplies(facts: Facts, jobs: Callable[[], Jobs], named: Named, backend: str = "auto") -> Supplies:
    """Bind the names that facets use to what makes them."""
    return Supplies(
        {
            "facts": lambda: facts,
            "jobs": jobs,
            "gpus": lambda: _gpus(facts),
            "backends": lambda: _backends(facts, backend),
            "model": _needs(named.model, "--model", lambda model: _model(jobs, model, named.batch)),
            "model_given": lambda: named.model is not None,
            "loader": _needs(named.loader, "--loader", lambda loader: _loader(jobs, loader)),
            "checkpoint": _needs(named.checkpoint, "--checkpoint", _checkpoint),
        }
    )


def _needs(value: Any, option: str, make: Callable[[Any], Any]) -> Callable[[], Any]:
    def supply() -> Any:
        if value is None:
            raise NotRun(f"no {option} given")
        return make(value)

    return supply


def _gpus(facts: Facts) -> Any:
    if not facts.gpus.devices:
        raise NotRun(facts.gpus.error or "no NVIDIA GPU")
    return facts.gpus


def _backends(facts: Facts, backend: str) -> tuple[str, ...]:
    """Give the backends to test: gloo works everywhere, nccl wants GPUs."""
    if backend != "auto":
        return (backend,)
    return ("gloo", "nccl") if facts.gpus.devices else ("gloo",)


def _model(jobs: Callable[[], Jobs], model: Target, batch: Target | None) -> Any:
    from ddpdoctor.probe.model_exam import examine_model

    return examine_model(jobs(), model, batch)


def _loader(jobs: Callable[[], Jobs], loader: Target) -> Any:
    from ddpdoctor.probe.loader_exam import examine_loader

    return examine_loader(jobs(), loader)


def _checkpoint(path: str) -> Any:
    from ddpdoctor.checkpoint import inspect

    try:
        return inspect(path)
    except BadTarget as exc:
        raise BadTarget(f"--checkpoint {exc}") from None
