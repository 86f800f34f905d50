"""Looks at the ranks of several hosts: the same command on each, by what reaches them, all at once."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 {}"
NAME = "{}"  # in a command: the host
STARTS = 60.0  # seconds that the way there, and Python on a busy host, may take beside the look itself
AT_ONCE = 32
GREETINGS = 16  # lines that begin as a report does
MOST_SAID = 200  # characters of why there is no look


class Looked(NamedTuple):
    """What a host has answered: its report, or why there is none."""

    host: str
    report: str
    why: str


def named(given: str) -> tuple[str, ...]:
    """Return the hosts of a list with commas.

    Raises:
        BadTarget: there is none, one is there twice, or one would be an option of the command that reaches it.
    """
    hosts = tuple(each for each in given.replace(",", " ").split() if each)
    if not hosts:
        raise BadTarget("--hosts names no host")
    for each in hosts:
        if each.startswith("-") or hosts.count(each) > 1:
            raise BadTarget(f"--hosts: {each} {'is no host' if each.startswith('-') else 'is there twice'}")
    return hosts


def reaching(via: str, host: str, command: Sequence[str]) -> list[str]:
    """Return what is started here to run a command there; ssh hands a shell one text, all others a list of words.

    Raises:
        BadTarget: the way has no place for the host, or quotes that do not end.
    """
    try:
        way = shlex.split(via)
    except ValueError as exc:
        raise BadTarget(f"--via: {exc}") from None
    if not any(NAME in each for each in way):
        raise BadTarget("--via says nowhere which host: write {} where its name belongs")
    words = [each.replace(NAME, host) for each in way]
    return [*words, shlex.join(command)] if Path(way[0]).name == "ssh" else [*words, *command]


def look_on(hosts: Sequence[str], via: str, seconds: float) -> Iterator[Looked]:
    """Yield what each host sees of its ranks, in the order of their names; none is waited for without end.

    Raises:
        BadTarget: nothing can be started in this way.
    """
    command = (sys.executable, "-m", "ddpdoctor", "stuck", "--seconds", f"{seconds:g}", "--format", "json")
    started = [reaching(via, host, command) for host in hosts]
    with ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as pool:
        yield from pool.map(_look, hosts, started, repeat(seconds + STARTS))


def _look(host: str, words: list[str], deadline: float) -> Looked:
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    except OSError as exc:
        raise BadTarget(f"--via: {words[0]}: {exc.strerror}") from None
    with process:
        try:
            out, errors = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            _end(process.pid)
            return Looked(host, "", f"no answer within {deadline:.0f} s")
    if report := _report(out):
        return Looked(host, report, "")
    said = [line.strip() for line in (errors or out).splitlines() if line.strip()]
    why = said[-1].removeprefix("ddpdoctor: ")[:MOST_SAID] if said else "it says nothing"
    return Looked(host, "", f"{why} (exit status {process.returncode})")


def _report(said: str) -> str:
    """Return the report in what a host has said; a shell that it went through can have greeted before (.bashrc)."""
    for begins in [found.start() for found in re.finditer(r"^\{", said, re.MULTILINE)][:GREETINGS]:
        with suppress(ValueError, RecursionError):
            found, end = json.JSONDecoder().raw_decode(said, begins)
            if "ranks" in found or "schema" in found:
                return said[begins:end]
    return ""


def _end(pid: int) -> None:
    """End a process and what it has started, which would keep its output open."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            each.kill()
