"""Looks at a command that is about to be started, as at a launch script of this one line, and at the one it names."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Place, Severity
from ddpdoctor.lint.examine import examine
from ddpdoctor.source.across.project import Project
from ddpdoctor.source.launching.launch_script import LaunchScript
from ddpdoctor.source.launching.launchers import SHELLS
from ddpdoctor.source.launching.script_variables import TYPED

if TYPE_CHECKING:
    from ddpdoctor.facets import Check
    from ddpdoctor.findings import Finding
    from ddpdoctor.lint.examine import Found

MOST_BYTES = 1_000_000
NAME = "the command"
"""Where its findings were seen. As a file it would stand in the working folder, beside the script that it names."""


def looks_at_commands(check: Check) -> bool:
    """Whether a check has something to say of a command that starts a training."""
    return any("launch" in facet.needs for facet in check.of(Instrument.LINT))


def found_in_command(words: Sequence[str], checks: Iterable[Check]) -> Iterator[Found]:
    """Yield what is certainly wrong in a command, which the user's shell has expanded: what is left, is quoted."""
    asked = tuple(check for check in checks if looks_at_commands(check))
    for each in examine(asked, LaunchScript(NAME, f"{shlex.join(words)}\n", TYPED), Project()).found:
        if each.is_certain:
            yield replace(each, finding=_of_command(each.finding))
    script = _script(words)
    try:
        text = script.read_text(encoding="utf-8") if script is not None else ""
    except (OSError, UnicodeDecodeError):
        return
    if not text or "#SBATCH" in text:  # which is meant for Slurm, and what it says of nodes is not so here
        return
    for each in examine(asked, LaunchScript(str(script), text, TYPED), Project()).found:
        if each.is_certain and each.finding.severity is not Severity.NOTE:
            yield replace(each, finding=replace(each.finding, fix=replace(each.finding.fix, edits=())))


def _script(words: Sequence[str]) -> Path | None:
    """Return the script that a command hands to a shell (``bash -e train.sh``), or that is one itself."""
    if words and SHELLS.match(words[0]):
        options = [*itertools.takewhile(lambda word: word.startswith("-"), words[1:])]
        if any(re.fullmatch(r"-\w*[cs]\w*", each) for each in options):
            return None  # its commands are a word, or come from elsewhere
        words = words[1 + len(options) :]
    elif not words or not words[0].endswith((".sh", ".bash")):
        return None
    script = Path(words[0]) if words else None
    return script if script is not None and script.is_file() and script.stat().st_size < MOST_BYTES else None


def _of_command(finding: Finding) -> Finding:
    """Return a finding without a place in a file: there is none."""
    evidence = tuple(replace(each, source=NAME) for each in finding.evidence)
    return replace(finding, evidence=evidence, place=Place(), fix=replace(finding.fix, edits=()))
