"""An object that cannot be pickled is handed to a new process.

## What happens

mp.spawn, and data loader workers where processes are spawned (Windows, macOS, `multiprocessing_context="spawn"`, Python
3.14 with forkserver), pickle everything that the new process needs. A lambda, a function inside of a function, an open
file, a lock or a generator cannot be pickled: "Can't pickle local object 'main.<locals>.<lambda>'", "cannot pickle
'_thread.lock' object", in the parent, before the first rank has run a line. On Linux with fork the same script works.

## How to be sure

Frames of popen_spawn or reduction.py, and the object's name in the message.

## How to mend it

Move functions and classes to the top level of a module (functools.partial in place of a lambda), and
make files, locks and connections inside the new process.

## Versions and sources

Source: Python documentation, "What can be pickled and unpickled?"; torch.multiprocessing documentation. Holds for
torch 2.2 to 2.13, Python 3.10 to 3.14.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP413", Severity.ERROR)
LOCAL = r"Can't (?:pickle|get) local object (?:'([^'\n]+)'|<(?:function|class) ([^\s>]+(?:<locals>\.[^\s>]*>?)?))"
STARTING = r"popen_(?:spawn|forkserver)\w*\.py|ForkingPickler|_MultiProcessingDataLoaderIter|\bmp\.spawn\("
RESOURCE = (
    r"TypeError: (?:cannot|can't) pickle '?([\w.]+)'? objects?"
    r"|(?:TypeError|ValueError): (\w+) objects (?:containing pointers )?cannot be pickled"
)
SAVING = r"torch[/\\]serialization\.py"


@log_pattern(LOCAL)
def of_a_local_object(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the object, unless it was torch.save that refused it."""
    if re.search(SAVING, record.text) and not re.search(STARTING, record.text):
        return
    name = match[1] or match[2]
    yield Finding(
        f"{name} is handed to a new process, and what is defined inside of a function cannot be pickled",
        (record.proof(match, "a function or class at the top level of a module"),),
        Fix(
            "move it to the top level of its module",
            diff="-    collate = lambda batch: pad(batch, width)\n"
            "+    collate = functools.partial(pad, width=width)   # pad: a function at the top level",
        ),
        record.place,
    )


@log_pattern(
    r"PicklingError: Can't pickle <?(?:(?:function|class|method) )?'?([\w.<>]+)[^\n:]*: (?:attribute lookup|it's not )",
    context=(STARTING,),
)
def of_a_shadowed_object(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name what pickle does not find under its own name, where a process is being started."""
    if not (re.search(STARTING, record.text) or (not record.frames and log.first(STARTING))):
        return
    yield Finding(
        f"{match[1]} is handed to a new process, and is not what its module has under this name",
        (record.proof(match, "a function or class at the top level of a module, under its own name"),),
        Fix(
            "define it at the top level, and do not rebind its name: a decorator or a generated class does that",
            diff="-train = decorate(train)\n+decorated = decorate(train)",
        ),
        record.place,
    )


@log_pattern(RESOURCE, context=(STARTING,))
def of_a_resource(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Yield the name of the type, where a process is being started."""
    if not (re.search(STARTING, record.text) or (not record.frames and log.first(STARTING))):
        return
    yield Finding(
        f"an object of type {match[1] or match[2]} is handed to a new process, and cannot be pickled",
        (record.proof(match, "arguments that can be pickled"),),
        Fix(
            "make it in the new process: in its function, in the data set's __getitem__, or in worker_init_fn",
            diff="-        self.file = open(path)\n+        self.path, self.file = path, None   # opened at first use",
        ),
        record.place,
    )
