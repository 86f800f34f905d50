"""How ``ddpdoctor check`` opens the meeting of several hosts, and runs the small jobs over all of them."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.cluster.compared.folders import leave_mark, saves_sharded, sizes, take_mark
from ddpdoctor.cluster.joint.jobs import DEADLINE, free_port, nothing, small_jobs
from ddpdoctor.cluster.joint.throughput import DEADLINE as MEASURING, measure
from ddpdoctor.cluster.meet import agent_store
from ddpdoctor.cluster.meet.agent_store import KEY
from ddpdoctor.cluster.meet.meeting import WARMING, Board, Meeting
from ddpdoctor.jobs.outcome import Raised, Returned

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from ddpdoctor.cluster.host import Host
    from ddpdoctor.cluster.joint.throughput import Row
    from ddpdoctor.cluster.launch import Launch
    from ddpdoctor.examine.target import Target
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.pool import Jobs


SMALL, MODEL = "joint", "model"  # jobs over all hosts


@dataclass(frozen=True, slots=True)
class Opening:
    """How the meeting is to be: the training's ``files`` are compared; ``joint``: jobs run over all hosts.

    ``model`` and its batch are trained over all hosts, ``data`` is compared, and ``save`` is where the training saves.
    """

    launch: Launch
    files: tuple[str, ...]
    wait: float
    jobs: Callable[[], Jobs]
    joint: bool
    model: tuple[Target, Target] | None = None
    data: str = ""
    save: str = ""

    def port(self) -> int:
        """Return a port for the small jobs over all hosts; 0 for none."""
        return free_port() if self.joint else 0

    def model_port(self) -> int:
        """Return a port for the job with the user's model; 0 for none."""
        return free_port() if self.joint and self.model else 0


def with_folders(host: Host, opening: Opening, stack: ExitStack) -> Host:
    """Return what this host says, with its folders; the file in the one that is saved to is removed at the end."""
    if opening.data:
        found, problem = sizes(opening.data)
        host = replace(host, data=found, data_folder=opening.data, data_problem=problem)
    if opening.save:
        mark = f".ddpdoctor-{secrets.token_hex(8)}"
        stack.callback(take_mark, opening.save, mark)
        problem = leave_mark(opening.save, mark)
        host = replace(host, save=opening.save, save_mark=mark, save_problem=problem)
    return replace(host, sharded=saves_sharded(opening.files))


def run_jobs(meeting: Meeting, opening: Opening, facts: Facts) -> None:
    """Run the small jobs over all hosts; where they went well, a step of the user's model."""
    master = opening.launch.master

    def small(*where: int) -> tuple[str, str]:
        return _joint(opening.jobs, facts, DEADLINE, small_jobs, master, *where)

    from ddpdoctor.checkup.model_job import MODEL_DEADLINE, model_job

    def with_model(*where: int) -> tuple[str, str]:
        step, problem = _joint(opening.jobs, facts, MODEL_DEADLINE, model_job, opening.model, master, *where)
        return step or MODEL, problem

    def start() -> bool:
        return _joint(opening.jobs, facts, WARMING, nothing) == ("", "")

    meeting.warm_up(start, WARMING, wanted=opening.joint)

    def carried(*where: int) -> Row:
        found = _outcome(opening.jobs, facts, MEASURING, measure, master, *where)
        return found.value if isinstance(found, Returned) else []

    meeting.run_joint(SMALL, small, opening.port, DEADLINE)
    meeting.measure(carried, opening.port, MEASURING)
    meeting.run_joint(MODEL, with_model, opening.model_port, MODEL_DEADLINE)


def say(text: str) -> None:
    """Tell the user how far the meeting is."""
    click.echo(f"ddpdoctor: {text}", err=True)


def board_of(opening: Opening) -> Board:
    """Reach torchrun's store from the pool, which has torch: a rank of it is the client."""
    launch = opening.launch
    key = f"{KEY}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"

    def run(function: Callable[..., Any], *args: Any, deadline: float) -> Any:
        arguments = (launch.master, launch.port, key, *args)
        (outcome,) = opening.jobs().run(function, *arguments, ranks=1, backend=None, deadline=deadline)
        if not isinstance(outcome, Returned):
            raise OSError(outcome.message if isinstance(outcome, Raised) else "torchrun's store does not answer")
        return outcome.value

    def get(seconds: float) -> int:
        value = str(run(agent_store.get, seconds, deadline=seconds + agent_store.CONNECT))
        return int(value) if value.isdecimal() else 0

    return Board(lambda port: run(agent_store.put, str(port), deadline=agent_store.CONNECT), get)


def _joint(
    jobs: Callable[[], Jobs], facts: Facts, deadline: float, function: Callable[..., Any], *args: Any
) -> tuple[str, str]:
    found = _outcome(jobs, facts, deadline, function, *args)
    if isinstance(found, str):
        return "", found
    step, problem = found.value
    return step, problem


def _outcome(
    jobs: Callable[[], Jobs], facts: Facts, deadline: float, function: Callable[..., Any], *args: Any
) -> Returned | str:
    """Run a job of this host's own rank; return its outcome, or why there is none."""
    environ = {"GLOO_SOCKET_IFNAME": facts.environ.get("GLOO_SOCKET_IFNAME")}
    try:
        (outcome,) = jobs().run(function, *args, ranks=1, backend=None, deadline=deadline, environ=environ)
    except Exception as exc:  # noqa: BLE001 - no torch, no time: the report says so
        return f"it did not run: {exc}"
    if isinstance(outcome, Raised):
        return f"{outcome.kind}: {outcome.message}"
    return outcome if isinstance(outcome, Returned) else f"it did not end in {deadline:.0f} s"
