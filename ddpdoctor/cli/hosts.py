"""``ddpdoctor check`` on several hosts: meets the others, and speaks for all of them on one."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ddpdoctor.cluster.code import hashes
from ddpdoctor.cluster.command import launch_of
from ddpdoctor.cluster.folders import leave_mark, saves_sharded, sizes, take_mark
from ddpdoctor.cluster.host import describe, host_line
from ddpdoctor.cluster.joint import DEADLINE, free_port, small_jobs
from ddpdoctor.cluster.launch import Launch, read_launch
from ddpdoctor.cluster.meet import agent_store
from ddpdoctor.cluster.meet.agent_store import KEY
from ddpdoctor.cluster.meet.meet import meet
from ddpdoctor.cluster.meet.meeting import Board, Invitation, Meeting
from ddpdoctor.cluster.reported import as_data as findings_data, with_reported
from ddpdoctor.cluster.wire.server import listening
from ddpdoctor.facets import BadTarget
from ddpdoctor.findings import Hosts, Report, Severity, Table
from ddpdoctor.jobs.outcome import Raised, Returned

if TYPE_CHECKING:
    from ddpdoctor.cli.show import Show
    from ddpdoctor.cluster.cluster import Cluster
    from ddpdoctor.cluster.host import Host
    from ddpdoctor.examine.target import Target
    from ddpdoctor.findings import Result
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.pool import Jobs


SMALL, MODEL, TRAIN = "joint", "model", "train"  # jobs over all hosts, and whether their own is rehearsed
TOKEN = "DDPDOCTOR_TOKEN"  # noqa: S105 - the name of a variable
REPORTS = 60.0  # seconds that the report waits for other hosts


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


@dataclass(slots=True)
class Session:
    """The meeting of this run."""

    meeting: Meeting
    launch: Launch
    facts: Facts

    @property
    def cluster(self) -> Cluster:
        """What was seen."""
        return self.meeting.cluster

    @property
    def seen(self) -> Cluster | str:
        """What checks are shown; one host looks at the whole, and the others say why they do not."""
        return self.cluster if self.speaks else f"the host that the others came to looks: {self.launch.master}"

    @property
    def speaks(self) -> bool:
        """Whether this host prints a report: the one that the others came to, and one that met nobody."""
        return self.meeting.client is None

    def let_train(self, results: list[Result], until: float) -> bool:
        """Whether the training can come to anything, the same on all hosts; the port where they met is left to it."""
        if self.meeting.server is not None:
            self.meeting.server.close_door()
        bad = any(finding.severity is Severity.ERROR for result in results for finding in result.findings)
        return self.meeting.agree(TRAIN, self.meeting.sound and not bad, until)

    def end(self, report: Report, show: Show, ends_at: float) -> Report | None:
        """Return the report of all hosts; None where another one reports, and one line says so."""
        if not self.cluster.met or len(self.cluster.hosts) < self.cluster.expected:
            show.line(self._host_line())
        if self.speaks:
            return self._joined(report, show, ends_at)
        if self.meeting.report(findings_data(report.results)):
            click.echo(self._short(report))
            return None
        for result in report.results:
            show.result(result)
        return replace(report, hosts=summary(self.cluster))

    def _joined(self, report: Report, show: Show, ends_at: float) -> Report:
        """Return the report with what the other hosts found."""
        hosts = self.cluster.hosts
        reported, silent = self.meeting.reported(min(ends_at, time.monotonic() + REPORTS))
        results = with_reported(report.results, {hosts[seat].name: data for seat, data in reported.items()})
        for old, new in zip(report.results, results, strict=True):
            if more := new.findings[len(old.findings) :]:
                show.result(replace(new, findings=more))
        faults = tuple(f"{hosts[seat].place} did not report what it found" for seat in silent)
        return replace(report, results=results, faults=(*report.faults, *faults), hosts=summary(self.cluster))

    def _short(self, report: Report) -> str:
        cluster, count = self.cluster, len(report.findings())
        found = f"{count} finding{'' if count == 1 else 's'} here"
        here = cluster.hosts[self.meeting.here].place
        return f"ddpdoctor: {here} of {cluster.expected}: {found}; {self.launch.master} reports"

    def _host_line(self) -> str:
        """Return the line by which ``ddpdoctor explain`` puts the logs of hosts together that did not meet."""
        tries = [f"{each.address}:{each.port} {each.ended}" for each in self.cluster.tries]
        return host_line(self.cluster.hosts[self.meeting.here], tries)


def launch_of_several(expect: int | None, command: tuple[str, ...] = ()) -> Launch | None:
    """Return the launch, where it is one of several hosts; ``expect`` is how many the user says there are.

    ``command`` is what is to be rehearsed: torchrun is told by its options where the hosts meet.

    Raises:
        BadTarget: several are expected, and nothing says where they meet.
    """
    launch = read_launch(os.environ)
    if not launch.several:
        launch = launch_of(command) or launch
    if expect is not None:
        launch = replace(launch, nodes=expect, by=launch.by or f"--expect {expect}")
    if not launch.several:
        return None
    if not launch.master:
        raise BadTarget(
            f"{launch.by} says that there are several hosts, and MASTER_ADDR is not set: give all of them the address "
            "of the first one, as the training has it: MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
        )
    return launch


def open_session(opening: Opening, facts: Facts, stack: ExitStack) -> Session:
    """Meet the other hosts; what is open is closed with the stack."""
    launch = opening.launch
    data = stack.enter_context(listening(0))  # nobody reads it: the kernel answers for it
    host = describe(facts, launch, hashes(opening.files), data.getsockname()[1], time.time())
    host = _with_folders(host, opening, stack)
    token = (os.environ.get(TOKEN) or launch.job or "by hand").encode()
    patient = "KUBERNETES_SERVICE_HOST" in facts.environ
    board = _board(opening) if launch.agent_store else None
    invitation = Invitation(host, launch.nodes or 2, opening.wait, token, facts.network, _say, patient, board)
    meeting = meet(invitation, stack)
    if meeting.cluster.met:
        _run_jobs(meeting, opening, facts)
    return Session(meeting, launch, facts)


def _with_folders(host: Host, opening: Opening, stack: ExitStack) -> Host:
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


def _run_jobs(meeting: Meeting, opening: Opening, facts: Facts) -> None:
    """Run the small jobs over all hosts; where they went well, a step of the user's model."""
    master = opening.launch.master

    def small(*where: int) -> tuple[str, str]:
        return _joint(opening.jobs, facts, DEADLINE, small_jobs, master, *where)

    from ddpdoctor.checkup.model_job import MODEL_DEADLINE, model_job

    def with_model(*where: int) -> tuple[str, str]:
        step, problem = _joint(opening.jobs, facts, MODEL_DEADLINE, model_job, opening.model, master, *where)
        return step or MODEL, problem

    meeting.run_joint(SMALL, small, opening.port, DEADLINE)
    meeting.run_joint(MODEL, with_model, opening.model_port, MODEL_DEADLINE)


def _say(text: str) -> None:
    click.echo(f"ddpdoctor: {text}", err=True)


def _board(opening: Opening) -> Board:
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
    environ = {"GLOO_SOCKET_IFNAME": facts.environ.get("GLOO_SOCKET_IFNAME")}
    try:
        (outcome,) = jobs().run(function, *args, ranks=1, backend=None, deadline=deadline, environ=environ)
    except Exception as exc:  # noqa: BLE001 - no torch, no time: the report says so
        return "", f"it did not run: {exc}"
    if isinstance(outcome, Returned):
        step, problem = outcome.value
        return step, problem
    if isinstance(outcome, Raised):
        return "", f"{outcome.kind}: {outcome.message}"
    return "", f"it did not end in {deadline:.0f} s"


def summary(cluster: Cluster) -> Hosts:
    """Return what the report shows of the hosts."""
    rows = tuple(
        (f"from {source.place}", *(_cell(cluster, number, target) for target in range(len(cluster.hosts))))
        for number, source in enumerate(cluster.hosts)
    )
    table = Table(("", *(f"to {host.place}" for host in cluster.hosts)), rows)
    return Hosts(tuple(host.place for host in cluster.hosts), cluster.expected, cluster.met, table)


def _cell(cluster: Cluster, source: int, target: int) -> str:
    if source == target:
        return "-"
    states = dict.fromkeys(link.state for link in cluster.links if (link.source, link.target) == (source, target))
    return ", ".join(states) or "not tried"
