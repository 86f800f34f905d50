"""``ddpdoctor check`` on several hosts: meets the others, and speaks for all of them on one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from ddpdoctor.cli.checkup.opening import Opening, board_of, run_jobs, say, with_folders
from ddpdoctor.cluster.command import launch_of, told
from ddpdoctor.cluster.compared.code import hashes
from ddpdoctor.cluster.compared.packages import packages_imported
from ddpdoctor.cluster.compared.reads import variables_read
from ddpdoctor.cluster.compared.settings import settings
from ddpdoctor.cluster.host import ProtocolError, describe, host_line
from ddpdoctor.cluster.launch import TOKEN, Launch, read_launch
from ddpdoctor.cluster.meet.meet import meet
from ddpdoctor.cluster.meet.meeting import ALONE, Invitation, Meeting
from ddpdoctor.cluster.plan import FULL
from ddpdoctor.cluster.probing import LARGE, OK
from ddpdoctor.cluster.reported import as_data as findings_data, with_reported, without_effects
from ddpdoctor.cluster.wire.ports import listening
from ddpdoctor.facets import BadTarget
from ddpdoctor.findings import Hosts, Report, Severity, Table
from ddpdoctor.host.network import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from ddpdoctor.cli.screen.show import Show
    from ddpdoctor.cluster.cluster import Cluster
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Result
    from ddpdoctor.host.facts import Facts


TRAIN = "train"  # whether the training itself is rehearsed
REPORTS = 60.0  # seconds that the report waits for other hosts
ENDED = "the check that reports for all hosts has ended before this one told it what it found: start it on all again"
AT_ONCE = 5.0  # seconds that it waits for what they find without torch


@dataclass(slots=True)
class Session:
    """The meeting of this run."""

    meeting: Meeting
    launch: Launch
    facts: Facts
    opening: Opening
    told: frozenset[str] = frozenset()
    """The checks whose findings the host where all meet has already."""
    heard: frozenset[int] = frozenset()
    """The hosts that have told theirs."""

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

    def run_jobs(self) -> None:
        """Run the small jobs over all hosts, where they met: what needs no torch has been said by then."""
        if self.cluster.met:
            run_jobs(self.meeting, self.opening, self.facts)

    def let_train(self, results: list[Result], until: float) -> bool:
        """Whether the training can come to anything, the same on all hosts; the port where they met is left to it."""
        if self.meeting.server is not None:
            self.meeting.server.close_door()
        bad = any(finding.severity is Severity.ERROR for result in results for finding in result.findings)
        return self.meeting.agree(TRAIN, self.meeting.sound and not bad, until)

    def with_others(self, known: dict[Check, Result]) -> dict[Check, Result]:
        """Tell the host where all meet what was found here without torch; there, add what the others told."""
        results = tuple(known.values())
        if self.meeting.report(findings_data(results), ALONE):
            self.told = frozenset(each.code for each in results)
        heard = self.meeting.reported(time.monotonic() + AT_ONCE, ALONE)
        self.heard = frozenset(heard)
        every = dict(zip(known, self.added(results, heard)[0], strict=True))
        return without_effects(every, self.facts.network.hostname)

    def end(self, report: Report, show: Show, ends_at: float) -> Report | None:
        """Return the report of all hosts; None where another one reports, and one line says so."""
        if not self.cluster.met or len(self.cluster.hosts) < self.cluster.expected:
            show.line(self._host_line())
        if self.speaks:
            return self._joined(report, show, ends_at)
        if self.meeting.report(findings_data(each for each in report.results if each.code not in self.told)):
            click.echo(self._short(report))
            for each in report.faults:
                say(each)
            return None
        for result in report.results:
            show.result(result)
        gone = f"{self.launch.master}: {ENDED}"
        return replace(report, faults=(*report.faults, gone), hosts=summary(self.cluster))

    def _joined(self, report: Report, show: Show, ends_at: float) -> Report:
        """Return the report with what the other hosts found."""
        reported = self.meeting.reported(min(ends_at, time.monotonic() + REPORTS))
        late = {seat: data for seat, data in self.meeting.reported(0, ALONE).items() if seat not in self.heard}
        silent = sorted(self.meeting.guests.keys() - reported.keys())
        results, broken = self.added(report.results, late)
        results, also = self.added(results, reported)
        for old, new in zip(report.results, results, strict=True):
            for each in new.findings:
                if each in old.findings:
                    continue
                if any(each.message == said.message for said in old.findings):
                    show.line(f"{new.code} {new.slug}: the same on {each.place.host}\n")
                else:
                    show.result(replace(new, findings=(each,)))
        faults = tuple(f"{self.cluster.hosts[seat].place} did not report what it found" for seat in silent)
        return replace(
            report, results=results, faults=(*report.faults, *faults, *broken, *also), hosts=summary(self.cluster)
        )

    def added(
        self, results: tuple[Result, ...], reported: dict[int, object]
    ) -> tuple[tuple[Result, ...], tuple[str, ...]]:
        """Return the results with those of others, and who said what no check says."""
        broken = []
        for seat, data in reported.items():
            host = self.cluster.hosts[seat]
            try:
                results = with_reported(results, {host.name: data}, self.facts.network.hostname)
            except ProtocolError as exc:
                broken.append(f"{host.place} reported what no check finds: {exc}")
        return results, tuple(broken)

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
    if (
        started := launch_of(command)
    ) is not None:  # what srun starts may be a torchrun, which then says where they meet
        if (tasks := launch.world_size or 0) > (launch.nodes or tasks) == started.nodes:
            raise BadTarget(
                f"{launch.launcher} has started {tasks} processes on {launch.nodes} hosts, and each would start "
                f"this {started.launcher} of {started.nodes} nodes: let it start one on each host (srun "
                "--ntasks-per-node=1, mpirun --map-by ppr:1:node)"
            )
        launch = replace(started, node=launch.node if started.node is None else started.node, job=launch.job)
    if expect is not None:
        launch = replace(launch, nodes=expect, by=launch.by or f"--expect {expect}")
    if not launch.several:
        if expect is None and (hint := uncounted(os.environ)):
            say(hint)
        return None
    if not launch.master:
        raise BadTarget(
            f"{launch.by} says that there are several hosts, and MASTER_ADDR is not set: give all of them the address "
            "of the first one, as the training has it: MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
        )
    return launch


def uncounted(environ: Mapping[str, str]) -> str:
    """Return what is missing where ranks are numbered by hand and meet at a host's address; empty else."""
    master, world = environ.get("MASTER_ADDR", ""), environ.get("WORLD_SIZE", "")
    is_here = not master or master == "localhost" or is_loopback(master)
    if is_here or not world.isdecimal() or int(world) < 2 or "LOCAL_WORLD_SIZE" in environ:  # noqa: PLR2004 - several
        return ""
    return (
        f"WORLD_SIZE={world} and MASTER_ADDR={master}, and nothing says on how many hosts: this one alone is looked "
        "at. Where there are several, they meet with NNODES=2 NODE_RANK=0 ddpdoctor check, on each with its own number"
    )


def as_its_ranks(facts: Facts, launch: Launch | None, command: tuple[str, ...]) -> Facts:
    """Return the facts with what a launcher that is still to be started will tell its ranks."""
    if launch is None or launch_of(command) is None:
        return facts
    return replace(facts, environ={**facts.environ, **told(launch)})


def open_session(opening: Opening, facts: Facts, stack: ExitStack) -> Session:
    """Meet the other hosts; what is open is closed with the stack."""
    launch = opening.launch
    data = stack.enter_context(listening(0))  # nobody reads it: the kernel answers for it
    host = describe(facts, launch, hashes(opening.files), data.getsockname()[1], time.time())
    reads, packages = variables_read(opening.files, os.environ), packages_imported(opening.files)
    host = replace(host, reads=reads, settings=settings(opening.files), packages=packages)
    host = with_folders(host, opening, stack)
    token = (os.environ.get(TOKEN) or launch.job or "by hand").encode()
    patient = "KUBERNETES_SERVICE_HOST" in facts.environ
    board = board_of(opening) if launch.agent_store else None
    invitation = Invitation(host, launch.nodes or 2, opening.wait, token, facts.network, say, patient, board)
    return Session(meet(invitation, stack), launch, facts, opening)


def summary(cluster: Cluster) -> Hosts:
    """Return what the report shows of the hosts."""
    shown = _shown(cluster)
    states: dict[tuple[int, int], dict[str, None]] = {(each, each): {"-": None} for each in shown}
    for link in cluster.links:
        states.setdefault((link.source, link.target), {})[link.state] = None
    names = {each: cluster.hosts[each].place for each in shown}
    rows = tuple(
        (f"from {names[source]}", *(", ".join(states.get((source, target), ("not tried",))) for target in shown))
        for source in shown
    )
    table = Table(("", *(f"to {name}" for name in names.values())), rows)
    count = len(cluster.hosts)
    tried = len({(link.source, link.target) for link in cluster.links})
    every = tuple(host.place for host in cluster.hosts)
    with_what = f"one connection, {LARGE >> 10} kB"
    return Hosts(every, cluster.expected, cluster.met, table, tried, count * (count - 1), with_what)


def _shown(cluster: Cluster) -> tuple[int, ...]:
    """Return the hosts that the matrix shows: all, and of very many those between which something is lost."""
    count = len(cluster.hosts)
    if count <= FULL:
        return tuple(range(count))
    bad = (link for link in cluster.links if link.state != OK)
    return tuple(sorted({each for link in bad for each in (link.source, link.target)}))[:FULL]
