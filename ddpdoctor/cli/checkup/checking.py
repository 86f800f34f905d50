"""A run of ``ddpdoctor check``: what looks at this machine, at the targets, at other hosts, and at the training."""

from __future__ import annotations

import functools
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkup.examine import examine, merged, out_of_time
from ddpdoctor.cli.screen.interrupt import without_deadline
from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Report, Result, Status

if TYPE_CHECKING:
    from ddpdoctor.checkup.examine import Inputs
    from ddpdoctor.checkup.inputs import Named
    from ddpdoctor.cli.checkup.hosts import Session
    from ddpdoctor.cli.screen.show import Show
    from ddpdoctor.cluster.launch import Launch
    from ddpdoctor.facets import Check
    from ddpdoctor.host.facts import Facts
    from ddpdoctor.jobs.pool import Jobs


@dataclass(frozen=True)
class Checkup:
    """What is looked at: the checks that were chosen, the targets and other options, and of which launch this is.

    ``launch`` is None on one host. What the run opens is closed with the ``stack``.
    """

    chosen: tuple[Check, ...]
    named: Named
    options: dict[str, Any]
    launch: Launch | None
    show: Show
    stack: ExitStack
    started: float = field(default_factory=time.monotonic)

    def run(self) -> tuple[Report | None, Facts]:
        """Return the report, and the facts of this host; no report where another host reports."""
        from ddpdoctor.host.facts import gather

        if _have_jobs(self.chosen):
            self.jobs()  # at once: it imports torch in the background while the rest goes on
        facts = gather(ranks=self.options["nproc"])
        session = self._session(facts)
        results, faults = self._examined(facts, session)
        results += self._of_command(session)
        rehearsed = None
        if self.options["command"] and not (session is None or session.let_train(results, self.ends_at)):
            self.show.line("Your command is not rehearsed: first mend what keeps the hosts apart.")
        elif self.options["command"]:
            from ddpdoctor.watch.rehearse import rehearse

            without_deadline()
            done = rehearse(
                self.options["command"], self.chosen, self.ends_at, self.show.progress, no_gpu=not facts.gpus.devices
            )
            faults, rehearsed = (*faults, *filter(None, [done.fault])), done.rehearsed
            for result in done.results:
                self.show.result(result)
            results += done.results
        report = Report(merged(results), faults, time.monotonic() - self.started, rehearsed)
        return (report if session is None else session.end(report, self.show, self.ends_at)), facts

    def _of_command(self, session: Session | None) -> list[Result]:
        """Look at the command before it is rehearsed, and show what is wrong in it."""
        if not self.options["command"]:
            return []
        from ddpdoctor.engine import result
        from ddpdoctor.lint.command import found_in_command, looks_at_commands

        found = [*found_in_command(self.options["command"], self.chosen)]
        results = [result(each.check, Status.FAILED, findings=(each.finding,)) for each in found]
        able = (Instrument.PROBE, Instrument.WATCH)
        others = [each for each in self.chosen if looks_at_commands(each) and not any(map(each.of, able))]
        results += [result(each, Status.PASSED) for each in others if each not in {one.check for one in found}]
        for each in results if session is None or session.speaks else ():
            self.show.result(each)
        return results

    @property
    def ends_at(self) -> float:
        """When the run is to be over, on the clock of ``time.monotonic``."""
        return self.started + float(self.options["timeout"])

    @functools.cached_property
    def _pool(self) -> Jobs:
        from ddpdoctor.jobs.pool import Jobs

        return self.stack.enter_context(Jobs(self.options["nproc"] or 2, os.environ, self.ends_at))

    def jobs(self) -> Jobs:
        """Return the pool of ranks, which is started when it is first asked for."""
        return self._pool

    def _examined(self, facts: Facts, session: Session | None) -> tuple[list[Result], tuple[str, ...]]:
        """Ask the checks, and show what each says; of several hosts, what needs no torch before any imports it.

        The second are the targets that could not be examined.
        """
        probes = [check for check in self.chosen if check.of(Instrument.PROBE)]
        probes.sort(key=lambda check: not _want_hosts((check,)))  # the faults between hosts first

        def one(check: Check, supply: Inputs) -> Result:
            self.show.progress(f"[{probes.index(check) + 1}/{len(probes)}] {check.code} {check.slug}")
            return examine(check, supply) if time.monotonic() < self.ends_at else out_of_time(check)

        then = first = self._inputs(facts, session)
        known = {each: one(each, first) for each in probes if not _have_jobs((each,))}  # they do not wait for it
        if session is not None:
            known = session.with_others(known)
            for result in known.values() if session.speaks else ():
                self.show.result(result)
            session.run_jobs()
            then = self._inputs(facts, session)
            probes.sort(key=lambda check: check not in known)
        results = []
        for each in probes:
            results.append(known.get(each) or one(each, then))
            if session is None or (session.speaks and each not in known):
                self.show.result(results[-1])
        return results, tuple(dict.fromkeys((*first.faults(), *then.faults())))

    def _inputs(self, facts: Facts, session: Session | None) -> Inputs:
        """Return what the checks ask for, of several hosts as they are known by now."""
        from ddpdoctor.checkup.inputs import supplies
        from ddpdoctor.cli.checkup.hosts import as_its_ranks

        told = as_its_ranks(facts, self.launch, self.options["command"])
        seen = None if session is None else session.seen
        if session is not None:
            told = replace(told, network=replace(told.network, translated=session.cluster.translated))
        return supplies(told, self.jobs, self.named, self.options["backend"], seen)

    def _session(self, facts: Facts) -> Session | None:
        """Meet the other hosts, where there are some and a check that asks for them."""
        asking = tuple(check for check in self.chosen if _want_hosts((check,)))
        if self.launch is None or not asking:
            return None
        from ddpdoctor.cli.checkup.hosts import open_session
        from ddpdoctor.cli.checkup.opening import Opening

        given = self.options
        named = [*given["command"], *(str(given[each] or "").partition(":")[0] for each in ("model", "loader"))]
        opening = Opening(
            self.launch,
            tuple(named),
            given["wait"],
            self.jobs,
            _have_jobs(asking),
            (given["model"], given["batch"]) if given["model"] and given["batch"] else None,
            given["data"] or "",
            given["save_folder"] or "",
        )
        return open_session(opening, facts, self.stack)


def _have_jobs(chosen: tuple[Check, ...]) -> bool:
    return any({"jobs", "model", "loader"} & set(facet.needs) for check in chosen for facet in check.facets)


def _want_hosts(chosen: tuple[Check, ...]) -> bool:
    return any("cluster" in facet.needs for check in chosen for facet in check.facets)
