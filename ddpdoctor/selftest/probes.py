"""Each check's broken case and healthy twin, really run on this machine: found in the one, silent on the other.

A case is a file ``broken.py`` or ``healthy.py`` in the fixture folder of its check. What it defines says what
the check is shown:

- ``fake_host(facts)``, a context manager that gives other host facts; where the scripts import torch, it stands in a
  file ``fake_host.py`` for both;
- ``build_model``, ``example_batch`` and ``build_loader``, targets as users name them;
- ``write_checkpoint(path)``, called on two real ranks;
- ``cluster()``, which returns what was seen of several hosts;
- ``in_each_rank()``, called in each rank of a job before the job's own function;
- ``pool(jobs)``, a context manager that gives another job pool.
"""

from __future__ import annotations

import ast
import importlib.util
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkup.examine import examine
from ddpdoctor.checkup.inputs import Named, supplies
from ddpdoctor.engine import result
from ddpdoctor.examine.target import Target, build
from ddpdoctor.facets import NotRun
from ddpdoctor.findings import Result, Status
from ddpdoctor.jobs.outcome import Returned
from ddpdoctor.selftest.result import SelfTestResult, fixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpdoctor.facets import Check
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.outcome import Outcome
    from ddpdoctor.jobs.pool import Jobs


@dataclass(frozen=True, slots=True)
class PreparedJobs:
    """The pool, with each rank prepared by a case's ``in_each_rank``."""

    jobs: Jobs
    prepare: Target

    @property
    def world_size(self) -> int:
        """The pool's."""
        return self.jobs.world_size

    def problem(self) -> str:
        """Return the pool's."""
        return self.jobs.problem()

    def with_hash_seed(self, seed: int) -> Jobs | None:
        """Return another pool, as the pool does; its ranks are not prepared."""
        return self.jobs.with_hash_seed(seed)

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Outcome, ...]:
        """Run a job as the pool does."""
        return self.jobs.run(prepared, self.prepare, function, args, **options)


def prepared(prepare: Target, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call the case's preparation, then the job's function, in a rank."""
    build(prepare, 0, 1)
    return function(*args)


def try_check(check: Check, facts: Facts, jobs: Jobs) -> SelfTestResult:
    """Run a check on its broken case and on its healthy twin."""
    broken, healthy = (_examine_case(check, name, facts, jobs) for name in ("broken", "healthy"))
    return SelfTestResult(check, broken, healthy)


def _examine_case(check: Check, name: str, facts: Facts, jobs: Jobs) -> Result:
    path = fixture(check, f"{name}.py")
    if not path.is_file():
        return result(check, Status.CRASHED, reason=f"there is no fixture {path}")
    offers = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    with ExitStack() as stack:
        try:
            if (path.parent / "fake_host.py").is_file() or "fake_host" in offers:
                stack.enter_context(FAKING)
            if (path.parent / "fake_host.py").is_file():
                facts = stack.enter_context(_loaded(path.parent / "fake_host.py").fake_host(facts))
            if "fake_host" in offers:
                facts = stack.enter_context(_loaded(path).fake_host(facts))
            targets = {option: Target(str(path), function) for option, function in TARGETS if function in offers}
            checkpoint = None
            if "write_checkpoint" in offers:
                targets.pop("batch", None)  # a checkpoint is compared with the model's keys: no step is needed
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddpdoctor-"))
                checkpoint = _written(Target(str(path), "write_checkpoint"), Path(folder), jobs)
        except NotRun as exc:
            return result(check, Status.NOT_RUN, reason=str(exc))
        pool: Any = stack.enter_context(_loaded(path).pool(jobs)) if "pool" in offers else jobs
        if "in_each_rank" in offers:
            pool = PreparedJobs(jobs, Target(str(path), "in_each_rank"))
        cluster = _loaded(path).cluster() if "cluster" in offers else None
        return examine(check, supplies(facts, lambda: pool, Named(checkpoint=checkpoint, **targets), cluster=cluster))


FAKING = threading.Lock()
"""Held while a case stands in for the host, as by another NVML: what one puts back, another must not miss."""
TARGETS = (("model", "build_model"), ("batch", "example_batch"), ("loader", "build_loader"))


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"ddpdoctor_case_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _written(write: Target, folder: Path, jobs: Jobs) -> str:
    path = str(folder / "checkpoint.pt")
    failed = [each for each in jobs.run(write_checkpoint, write, path, ranks=2) if not isinstance(each, Returned)]
    if failed:
        raise RuntimeError(f"{write} wrote no checkpoint: {failed}")
    return path


def write_checkpoint(write: Target, path: str) -> None:
    """Call the case's ``write_checkpoint`` in a rank."""
    from ddpdoctor.examine.target import load

    load(write)(path)
