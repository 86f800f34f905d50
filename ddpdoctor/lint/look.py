"""Looks at files: at one, or at many in several processes, and at none whose outcome is known already."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.launch.forked import forked
from ddpdoctor.lint.around import Around
from ddpdoctor.lint.cache import digest
from ddpdoctor.lint.examine import examine, is_too_deep
from ddpdoctor.lint.kept import in_cell, kept_of
from ddpdoctor.lint.outcome import Outcome, as_plain, from_plain
from ddpdoctor.lint.reading import PYTHON, CannotReadError, concerns_us, kind, read, source
from ddpdoctor.source.script import Script
from ddpdoctor.source.text.steps import MOST, STEPS, TooManyStepsError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ddpdoctor.facets import Check
    from ddpdoctor.lint.cache import Cache
    from ddpdoctor.source.across.project import Project

SHARE = 16  # files that a process is given at once
NO_TEXT = "cannot be read: it is no text"
COLLECT = 200  # files after which what hangs together in circles is freed


@dataclass(frozen=True)
class Work:
    """Which checks are asked, and the project; ``texts`` are the contents of files that are held already."""

    checks: tuple[Check, ...]
    project: Project
    texts: dict[str, bytes] = field(default_factory=dict)


def look(name: str, data: bytes, work: Work) -> Outcome:
    """Look at a text as the file of this name."""
    try:
        parsed = source(name, data)
    except CannotReadError as exc:
        return Outcome(faults=(str(exc),))
    if parsed is None:
        return Outcome()
    if isinstance(parsed, Script) and is_too_deep(parsed):
        return Outcome(faults=(f"{name}: cannot look at it, because it is nested too deeply",))
    STEPS.begin()
    try:
        looked = examine(work.checks, parsed, work.project)
    except TooManyStepsError:
        return Outcome(faults=(f"{name}: not read, because its names hang together in more than {MOST:,} ways",))
    finally:
        STEPS.begin(float("inf"))
    kept, useless = kept_of(parsed, looked.found)
    told = tuple((line, f"{name}:{line}: {text}", names) for line, text, names in useless)
    if isinstance(parsed, Script) and parsed.cells is not None:
        kept = [in_cell(each, parsed.cells) for each in kept]
        told = ()
    return Outcome(True, tuple(kept), (), told, looked.crashes, looked.asked)  # noqa: FBT003 - as the fields stand


Told = Callable[[int, int], object]
"""Is told how many files were looked at, of how many."""


def examine_all(names: list[str], work: Work, cache: Cache | None, told: Told, *, several: bool) -> list[Outcome]:
    """Return the outcome of each file, in the order of the files; where the user breaks it off, of those looked at."""
    outcomes: dict[str, Outcome] = {}
    keys: dict[str, str] = {}
    with contextlib.suppress(KeyboardInterrupt):
        _read_all(names, work, cache, outcomes)
        told(len(outcomes), len(names))
        keys |= {name: _key(name, work) for name in work.texts} if cache is not None else {}
        for name, key in keys.items():
            if cache is not None and (plain := cache.get(key)) is not None:
                known = from_plain(plain, {each.code: each for each in work.checks})
                if Around(work.project, os.path.normpath(name)).still(known.asked):
                    outcomes[name] = known
        waiting = [name for name in work.texts if name not in outcomes]
        for name, outcome in _looked(waiting, work, several=several):
            outcomes[name] = outcome
            told(len(outcomes), len(names))
            if cache is not None:
                cache.put(keys[name], as_plain(outcome))
    return [outcomes[name] for name in names if name in outcomes]


def _read_all(names: list[str], work: Work, cache: Cache | None, outcomes: dict[str, Outcome]) -> None:
    """Read the files; of those that do not concern us, and those that cannot be read, the outcome is known."""
    for name in names:
        try:
            data = read(Path(name))
        except CannotReadError as exc:
            outcomes[name] = Outcome(faults=(str(exc),))
            continue
        if concerns_us(name, data):
            work.texts[name] = data
        else:
            outcomes[name] = Outcome(faults=(f"{name}: {NO_TEXT}",) if kind(name) is None and b"\0" in data else ())
        if cache is not None and (kind(name) or PYTHON) == PYTHON:
            _remember(name, digest(data), work.project, cache)


def _remember(name: str, content: str, project: Project, cache: Cache) -> None:
    """Let the project know what a file of these contents imports, without reading it again."""
    key = f"imports {content}"
    known = cache.get(key)
    path = os.path.normpath(name)
    if known is None:
        known = project.statements(path)
        cache.put(key, known)
    project.digests[path] = content
    project.known[path] = [(module, list(parts)) for module, parts in known]


def _key(name: str, work: Work) -> str:
    """Return what the outcome of a file hangs on, but for what is asked of files that it does not reach."""
    path = os.path.normpath(name)
    reach = sorted(work.project.reach(path) - {path})
    texts = [each.encode() + b"\0" + work.project.digest(each).encode() for each in reach]
    unknown = sorted(work.project.unknown(path))
    return digest(name.encode(), work.texts[name], repr(unknown).encode(), *texts)


def _looked(names: list[str], work: Work, *, several: bool) -> Iterator[tuple[str, Outcome]]:
    """Look at files, in as many processes as there are processors where that is worth it."""
    processes = min(os.cpu_count() or 1, len(names) // SHARE)
    if not several or processes < 2 or not hasattr(os, "fork"):  # noqa: PLR2004 - several
        yield from _one_by_one(names, work)
        return
    _ = work.project.importers  # before the processes part: each would work it out
    missing = dict.fromkeys(names)
    for name, outcome in _in_processes([names[first::processes] for first in range(processes)], work):
        del missing[name]
        yield name, outcome
    yield from _one_by_one(missing, work)


def _in_processes(shares: list[list[str]], work: Work) -> Iterator[tuple[str, Outcome]]:
    """Look at shares of files in a process each; what one owes that was ended is left out."""
    from multiprocessing.connection import wait  # one file in an editor needs none

    known = {each.code: each for each in work.checks}
    started = dict(forked(partial(_tell, names=share, work=work)) for share in shares)
    try:
        while started:
            for receiver in wait(list(started)):
                try:
                    name, plain = json.loads(receiver.recv_bytes())  # type: ignore[union-attr]
                    yield name, from_plain(plain, known)
                except EOFError:
                    started.pop(receiver).join()  # type: ignore[call-overload]
    finally:
        for process in started.values():
            process.terminate()


def _tell(sender: Connection, names: list[str], work: Work) -> None:
    for name, outcome in _one_by_one(names, work):
        sender.send_bytes(json.dumps([name, as_plain(outcome)]).encode())


def _one_by_one(names: Iterable[str], work: Work) -> Iterator[tuple[str, Outcome]]:
    """Look at files; trees are many small objects, which a collector would go through again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        for number, name in enumerate(names, 1):
            yield name, look(name, work.texts[name], work)
            if number % COLLECT == 0:
                gc.collect(0)  # what is new: what other files may ask for is kept, and grows
    finally:
        if was_on:
            gc.enable()
