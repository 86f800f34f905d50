"""A dictionary, a table or a sample has not the key that the code asks it for.

## What happens

`KeyError: 'mask_path'` names the key and nothing else. In a training it is mostly one of these: a column or a field of
the data set is called otherwise, a label of the data is not in the table of classes, a configuration lacks an entry.
Where one rank alone fails, its share of the data holds the sample that the others do not have, and they wait for it.

## How to be sure

The line of your own code that the finding names says which mapping was asked. Print what it has there:
`print(list(mapping)[:20])`. A value as key (`classes[name]`) means that the data has a value more than the table.

## How to mend it

Name the key as the data does, or handle the sample that lacks it on all ranks alike (leave it out of the list of
samples before the sampler divides it, not in the loop: ranks must make the same number of steps).

## Versions and sources

Holds for all versions of Python and torch. Source: Python documentation, "KeyError".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Severity, log_pattern

from ..._hosts.ranks_of_hosts import LOCAL
from ._own_errors import who

AILMENT = Ailment("DDP438", Severity.ERROR)
NOT_THERE = (
    r"(?:^|\n)[ |]*KeyError: (?P<key>'[^'\n]{1,120}'|\"[^\"\n]{1,120}\"|-?\d{1,18}|\([^\n]{1,120}\))[ |]*(?:\n|$)"
)
OF_OTHERS = re.compile(r"[/\\](?:os|importlib)\.py\"|<frozen os>|torch[/\\]optim[/\\]|load_state_dict\(|state_dict")
FROM_ENVIRONMENT = re.compile(r"[/\\]os\.py\", line|<frozen os>|os\.environ\[")
VARIABLE = re.compile(r"['\"][A-Z][A-Z0-9_]{1,60}['\"]")
ASKED = re.compile(r"(?<![\w.])(?P<mapping>[A-Za-z_][\w.]*(?:\[[^\[\]]{1,60}\]|\(\))*)\s*\[(?P<asked>[^\[\]]{1,120})\]")
TABLE = re.compile(r"pandas[/\\]core[/\\]")
FROM_FILE = re.compile(r"\b(?:ckpt|chkpt|checkpoint|state|weights|snapshot)\w*$")
IN_WORKER = "_worker_loop"


@log_pattern(NOT_THERE, context=(LOCAL,), plain=True)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Say which mapping of the user's code was asked, and by what."""
    if FROM_ENVIRONMENT.search(record.text) and VARIABLE.fullmatch(match["key"]):
        yield _of_the_environment(record, match, who(log, NOT_THERE).words)
        return
    if record.users is None or OF_OTHERS.search(record.text):
        return
    if record.frames[-1] != record.users and not TABLE.search(record.text):
        return  # of a library's own mapping, which the user's code does not see
    key = match["key"]
    asked = _asked(record.code, key)
    if asked is not None and FROM_FILE.search(asked[0]):
        return  # of a checkpoint: checkpoint-part-missing
    by = who(log, NOT_THERE)
    mapping, is_value = asked or ("", True)
    what = "a column" if TABLE.search(record.text) else "a key"
    of = f" of {mapping}" if mapping else ""
    yield Finding(
        f"{by.words} asked for {key}, which is no{what[1:]}{of}"
        + (
            ": the data holds a value that this table has not"
            if mapping and is_value and what == "a key" and IN_WORKER in record.text
            else ""
        ),
        (record.proof(match, f"{what} {key}"),),
        Fix(
            "see what it has at that line, and name the key as the data does",
            diff=f"+print(sorted(map(str, {mapping or 'mapping'}))[:50])\n {record.code or 'value = mapping[key]'}",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "some samples lack it, or have a value that no other has: they are in this rank's share",
                "the data set, or its version, names it otherwise",
            )
            if IN_WORKER in record.text or by.is_one_of_several
            else (
                "the file or the data set names it otherwise, or is of another version",
                "some samples lack it, or have a value that no other has",
            ),
            "torchrun --nproc_per_node=1 train.py   # all samples on one rank: fails at once where all lack it"
            if by.all_ranks
            else f"python {record.users.file}   # with that print above the line: what it has, and whether always",
        ),
    )


def _of_the_environment(record: Record, match: re.Match[str], by: str) -> Finding:
    name = match["key"].strip("'\"")
    return Finding(
        f"{by} reads the environment variable {name}, which is not set there",
        (record.proof(match, f"{name} in the environment of the ranks"),),
        Fix(
            "set it where the ranks are started, and let the launcher hand it on; or give the script a value to go by",
            command=f"export {name}=...   # mpirun -x {name}, docker run -e {name}, srun --export=ALL",
            diff=f'-os.environ["{name}"]\n+os.environ.get("{name}", DEFAULT)',
        ),
        record.place,
    )


def _asked(code: str, key: str) -> tuple[str, bool] | None:
    """Return the mapping that a line asks for the key, and whether it asks by a variable; None where that is open."""
    found = [(each["mapping"], each["asked"].strip()) for each in ASKED.finditer(code)]
    named = [mapping for mapping, asked in found if asked in {key, key.replace("'", '"')}]
    if named:
        return named[0], False
    inner = [mapping for mapping, asked in found if asked.rpartition(", ")[2] in {key, key.replace("'", '"')}]
    if inner:
        return inner[0].removesuffix(".loc").removesuffix(".at"), False
    open_ones = [mapping for mapping, asked in found if re.fullmatch(r"[A-Za-z_][\w.]*", asked)]
    return (open_ones[0], True) if len(open_ones) == 1 else None
