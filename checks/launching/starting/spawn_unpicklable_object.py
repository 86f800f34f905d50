"""An object that cannot be pickled is handed to a new process, or to other ranks.

## What happens

mp.spawn, and data loader workers where processes are spawned (Windows, macOS, `multiprocessing_context="spawn"`, Python
3.14 with forkserver), pickle everything that the new process needs. A lambda, a function inside of a function, an open
file, a lock or a generator cannot be pickled: "Can't pickle local object 'main.<locals>.<lambda>'", "cannot pickle
'_thread.lock' object", in the parent, before the first rank has run a line. On Linux with fork the same script works.

`all_gather_object`, `gather_object`, `broadcast_object_list` and `scatter_object_list` pickle as well, on the rank that
sends: the frame is `_object_to_tensor`. On the rank that receives, an exception whose `__init__` takes more than a
message cannot be made again: "TypeError: ParseError.__init__() missing 1 required positional argument", in
`_tensor_to_object`.

Lightning's `ddp_spawn` and `ddp_notebook` hand the whole module, the data module and the Trainer to the new processes,
and with them whatever these hold: a run of a tracker, its settings, an open file.

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

from ddpdoctor.check import Ailment, Finding, Fix, Log, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP413", Severity.ERROR)
LOCAL = r"Can't (?:pickle|get) local object (?:'([^'\n]+)'|<(?:function|class) ([^\s>]+(?:<locals>\.[^\s>]*>?)?))"
STARTING = r"popen_(?:spawn|forkserver)\w*\.py|ForkingPickler|_MultiProcessingDataLoaderIter|\bmp\.spawn\("
RESOURCE = (
    r"TypeError: (?:cannot|can't) pickle '?([\w.]+)'? objects?"
    r"|(?:TypeError|ValueError): (\w+) objects (?:containing pointers )?cannot be pickled"
)
OF_LIGHTNING = re.compile(r"lightning[/\\].*launchers[/\\](?:spawn|multiprocessing)\.py")
BY_COMMAND = Fix(
    "let Lightning start the script itself on each rank (strategy='ddp'), which pickles nothing; or make such "
    "objects, as loggers and runs, in setup() or a hook, which runs in the new process",
    diff="-Trainer(strategy='ddp_spawn', devices=2)\n+Trainer(strategy='ddp', devices=2)   # no notebook",
)
SENDING = r"in _object_to_tensor\b"


@log_pattern(LOCAL)
def of_a_local_object(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the name of the object; not where something else pickles, as torch.save does."""
    whereto = _whereto(record)
    if not whereto and record.frames:
        return
    yield Finding(
        f"{match[1] or match[2]} is handed to {whereto or NEW}, and what is defined inside of a function cannot be "
        "pickled",
        (record.proof(match, "a function or class at the top level of a module"),),
        BY_COMMAND
        if OF_LIGHTNING.search(record.text)
        else Fix(
            "move it to the top level of its module",
            diff="-    collate = lambda batch: pad(batch, width)\n"
            "+    collate = functools.partial(pad, width=width)   # pad: a function at the top level",
        ),
        record.place,
    )


@log_pattern(r"AttributeError: Can't get attribute '(?P<name>[^'\n]{1,100})' on <module '__main__' \(built-in\)>")
def of_a_notebook(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A process that is started anew has no cells: what one defined is not there."""
    yield Finding(
        f"a new process has no {match['name']}: it was defined in a cell of a notebook, or in an interactive session",
        (record.proof(match, "a function in a module that the new process can import"),),
        Fix(
            "write it into a file and import it, or start the processes by fork before CUDA is used",
            diff=f"+%%writefile work.py\n def {match['name']}(rank):\n     ...\n"
            f"-mp.spawn({match['name']}, nprocs=2)\n+import work\n+mp.spawn(work.{match['name']}, nprocs=2)",
        ),
        record.place,
    )


NEW = "a new process"


def _whereto(record: Record) -> str:
    """Return who is to get what is pickled; empty where the frames do not tell."""
    if re.search(SENDING, record.text):
        return "the other ranks"
    return NEW if re.search(STARTING, record.text) else ""


@log_pattern(
    r"PicklingError: Can't pickle <?(?:(?:function|class|method) )?'?([\w.<>]+)[^\n:]*: "
    r"(?:attribute lookup|it's not |import of module )",
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
    """Yield the name of the type, where a process is being started, or objects are sent to ranks."""
    whereto = _whereto(record) or (NEW if not record.frames and log.first(STARTING) else "")
    if not whereto:
        return
    is_new = whereto == NEW
    yield Finding(
        f"an object of type {match[1] or match[2]} is handed to {whereto}, and cannot be pickled",
        (record.proof(match, "arguments that can be pickled"),),
        BY_COMMAND
        if is_new and OF_LIGHTNING.search(record.text)
        else Fix(
            "make it in the new process: in its function, in the data set's __getitem__, or in worker_init_fn",
            diff="-        self.file = open(path)\n+        self.path, self.file = path, None   # opened at first use",
        )
        if is_new
        else Fix(
            "send what it is made of: numbers, names, tensors on the CPU",
            diff="-dist.all_gather_object(objects, loader)\n"
            "+dist.all_gather_object(objects, {'path': path, 'rows': rows})",
        ),
        record.place,
    )


@log_pattern(
    r"(?:in _tensor_to_object|ForkingPickler\.loads|_pickle\.loads|pickle\.loads)\b[^\0]{0,600}?"
    r"TypeError: (?P<name>[\w.]+)\.__init__\(\) (?P<said>missing \d+ required positional argument|takes \d+ positional)"
)
def of_what_cannot_be_made_again(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """An exception is pickled by its class and its message; a class that takes more cannot be made of that."""
    name = match["name"]
    yield Finding(
        f"an object of class {name} was sent, and cannot be made again where it is received: pickle calls "
        f"{name.rpartition('.')[2]} with what Exception was given, and its __init__ takes something else",
        (record.proof(None, "what can be pickled, and made again"),),
        Fix(
            "send its text, or let the class say how it is made again",
            diff="-errors.append(error)\n+errors.append(f'{type(error).__name__}: {error}')\n"
            " class ParseError(Exception):\n     def __init__(self, line, column):\n"
            "-        super().__init__(f'line {line}')\n+        super().__init__(line, column)",
        ),
        record.place,
    )


@log_pattern(r"RuntimeError: Cowardly refusing to serialize non-leaf tensor which requires_grad")
def of_a_tensor_with_history(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A result of a computation cannot go to another process with its graph."""
    yield Finding(
        "a tensor that is the result of a computation is handed to another process, and its graph cannot go along",
        (record.proof(match, "tensors without history"),),
        Fix("detach it first", diff="-queue.put(loss)\n+queue.put(loss.detach())"),
        record.place,
    )


@log_pattern(r"EOFError: Ran out of input", role=Role.CONSEQUENCE)
def in_the_new_process(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A process whose arguments never came: the one that starts it failed while it pickled them."""
    if re.search(r"from_parent|spawn_main", record.text):
        yield Finding(
            "a new process got no arguments: the one that started it failed while it sent them",
            (record.proof(match, "the arguments, pickled"),),
            Fix("read the error of the process that starts it: it names what cannot be pickled", command=FIRST),
            record.place,
        )


FIRST = "grep -n -B5 -iE 'pickl' train.log | head -40"
