"""The script refuses its command line.

## What happens

The script's parser prints its usage and one line ("train.py: error: unrecognized arguments: --amp_dtype bf16"), and
each rank ends with exit status 2. There is no traceback but the launcher's, which says nothing of it.

## How to be sure

In a source (`ddpdoctor lint`): a launch script starts a script of the project with an option that its only parser does
not declare, or without one that it declares as required. Nothing is said where the parser is handed on, reads unknown
options, or is given what only the shell knows.

In a log the line is the error. The parser is that of the program whose name it begins with: what stands behind the
script's name on the command line goes to the script, what stands before it to the launcher.

## How to mend it

`python train.py --help` lists what it takes.

## Versions and sources

Holds for argparse, transformers' HfArgumentParser, click and absl, with torch 2.2 to 2.13. Source: CPython,
Lib/argparse.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, lint, log_pattern

from ._parser import Option, options_of

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LaunchScript, Word

AILMENT = Ailment("DDP425", Severity.ERROR)
ARGPARSE = (
    r"(?m)^(?P<program>[\w./-]{1,200}): error: (?P<said>(?:the following arguments are required: |unrecognized "
    r"arguments: |one of the arguments |argument |ambiguous option: |not allowed with argument )[^\n]{1,500})"
)
TRY = r"(?m)^Try '[^'\n]{1,200} (?:--help|-h)' for help"
CLICK = r"(?m)^Error: (?P<said>(?:Missing|No such|Invalid value for|Got unexpected)[^\n]{1,500})"
NOT_USED = r"ValueError: (?P<said>Some specified arguments are not used by the HfArgumentParser: [^\n]{1,500})"
ABSL = r"FATAL Flags parsing error: (?P<said>[^\n]{1,500})"
STATUS = r"exitcode ?: (\d+)|(?:exit code:?|return code =|exit status|terminated with code) (\d+)"
BEHIND = 2  # lines that a shell says behind the last word of a parser
LAUNCHERS = {"torchrun", "launch.py", "run.py", "runner.py", "accelerate", "deepspeed", "launch"}
OF_A_LAUNCHER = re.compile(
    r"(?:--|')(?:local[-_]rank|nproc[-_]per[-_]node|nnodes|node[-_]rank|rdzv[-_]\w+|standalone|num[-_]processes"
    r"|num[-_]machines|machine[-_]rank|main[-_]process[-_]port|multi[-_]gpu|num[-_]gpus|num[-_]nodes|hostfile)\b"
)


@log_pattern(ARGPARSE, context=(STATUS,))
def of_argparse(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote the parser of a script; what a launcher refuses, or hands to the script, is another matter."""
    if match["program"].rpartition("/")[2] not in LAUNCHERS and not _ended_otherwise(log):
        yield from _refused(record, match, match["program"])


@log_pattern(f"{NOT_USED}|{ABSL.replace('said', 'other')}")
def by_exception(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Quote HfArgumentParser and absl."""
    yield from _refused(record, match, "the script")


@log_pattern(CLICK, context=(TRY, STATUS))
def of_click(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote click, which says beside it how to ask for help, and ends with status 2."""
    if (log.first(TRY) or log.first(STATUS)) and not _ended_otherwise(log):
        yield from _refused(record, match, "the script")


def _ended_otherwise(log: Log) -> bool:
    """Whether processes ended, and none with the status of a parser that refuses; or the log goes on behind it."""
    statuses = {found[1] or found[2] for _, found in log.find(STATUS)}
    if statuses:
        return "2" not in statuses
    last = [log.lines_after(each) for pattern in (ARGPARSE, CLICK) for each, _ in log.find(pattern)]
    return bool(last) and min(last) > BEHIND


def _refused(record: Record, match: re.Match[str], program: str) -> Iterator[Finding]:
    said = (match.groupdict().get("said") or match.groupdict().get("other") or "").strip()
    if OF_A_LAUNCHER.search(said) and not said.startswith(("the following", "one of")):
        return
    script = program if program.endswith(".py") else "train.py"
    yield Finding(
        f"{program} refuses its command line: {said}",
        (record.proof(match, "arguments that the script takes"),),
        Fix(
            "give the script what it takes, behind its name; the launcher's options stand before it",
            command=f"python {script} --help",
        ),
        record.place,
    )


@lint
def in_launch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Compare what a launcher hands to a script with what the script's parser declares."""
    if any(each.words and each.words[0].text in MOVES for each in launch.shell.commands):
        return
    for each in launch.launches:
        script = each.script
        if script is None or script.is_open or each.is_open or not script.text.endswith(".py"):
            continue
        text = project.beside(script.text)
        options = options_of(text) if text is not None else None
        if options is None or any(word.text == "--" for word in each.arguments):
            continue
        names = {name for option in options for name in option.names}
        wrong = next((word for word in each.arguments if _is_none_of(word, names)), None)
        if wrong is not None:
            yield _of_launch(
                launch, wrong, script, f"does not know {wrong.text.partition('=')[0]}", "an option of its own"
            )
            continue
        lacking = [] if _holds_more(each.arguments, options) else _lacking(each.arguments, options)
        if lacking:
            said = f"requires {', '.join(lacking)}, which this command does not give"
            yield _of_launch(launch, script, script, said, " ".join(f"{name} VALUE" for name in lacking))


MOVES = {"cd", "pushd", "git", "wget", "curl"}
"""Commands after which a file of that name can be another one."""
WITH_LAUNCHERS = {"local-rank", "local_rank"}


def _is_none_of(word: Word, names: set[str]) -> bool:
    """Whether a word is a long option that no name is, or begins with."""
    name = word.text.partition("=")[0]
    if not re.fullmatch(r"--[A-Za-z][\w-]*", name) or name[2:] in WITH_LAUNCHERS or OF_A_LAUNCHER.match(name):
        return False
    return not any(each.startswith(name) for each in names)


def _holds_more(words: tuple[Word, ...], options: tuple[Option, ...]) -> bool:
    """Whether a word stands for options that only the shell knows: one that is no value of the option before it."""
    taking = {name for each in options if each.takes for name in each.names}
    before = ("", *(word.text for word in words))
    return any(
        word.is_open and not word.text.startswith("-") and last not in taking
        for word, last in zip(words, before, strict=False)
    )


def _lacking(words: tuple[Word, ...], options: tuple[Option, ...]) -> list[str]:
    """Return the required options that no word is, or begins."""
    given = [word.text.partition("=")[0] for word in words if word.text.startswith("-")]
    return [
        each.names[-1]
        for each in options
        if each.required
        and each.names[-1].startswith("-")
        and not any(
            name == one or (one.startswith("--") and name.startswith(one)) for one in given for name in each.names
        )
    ]


def _of_launch(launch: LaunchScript, word: Word, script: Word, said: str, expected: str) -> Finding:
    return Finding(
        f"{script.text} {said}: each rank ends with exit status 2 before it does anything",
        (launch.seen(word.line, expected),),
        Fix("give the script what it takes", command=f"python {script.text} --help"),
        launch.place(word.line, word.begin),
    )
