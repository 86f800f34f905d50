"""A remote call names a worker that no rank has taken as its name.

## What happens

`rpc.init_rpc(name, ...)` gives each rank a name, and `rpc_sync`, `rpc_async` and `remote` find their destination by
that name alone. "name:trainer1,rank:1 could not find destination name ps" comes where it is misspelt, where the other
rank builds its name in another way (`trainer_1`, `trainer1`), or where the ranks are counted from another number. The
rank that asked ends there; the others wait in `rpc.shutdown()`.

## How to be sure

Compare the names that are given to `init_rpc` on all ranks with the one that is called. `ddpdoctor lint` does so where
they stand in the source. While the workers run:

    print([each.name for each in rpc.api._get_current_rpc_agent().get_worker_infos()])

## How to mend it

Call the worker by the name that it has; make both of one function, or of one constant.

## Versions and sources

Seen with torch 2.13. Until torch 1.11 the message was "Unknown destination worker ps". Source: pytorch/pytorch#75811;
torch/distributed/rpc/api.py, `_to_worker_info`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, closest, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP1487", Severity.ERROR)
RPC = "torch.distributed.rpc"
SEVERAL = 2
CALLS = tuple(f"{RPC}.{name}" for name in ("rpc_sync", "rpc_async", "remote", "get_worker_info"))


@log_pattern(
    r"name:(?P<own>[\w:-]{1,99}),rank:(?P<rank>\d+) could not find destination (?P<kind>name|id) (?P<name>[\w:-]+)"
    r"|Unknown destination worker (?P<old>[\w:-]+)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name both sides."""
    wanted = match["name"] or match["old"]
    by = f"{match['own']}, rank {match['rank']}, calls" if match["own"] else "a rank calls"
    what = "the worker with the number" if match["kind"] == "id" else "the worker"
    yield Finding(
        f"{by} {what} {wanted!r}, and no rank is called that",
        (record.proof(match, "a name that a rank has given to init_rpc"),),
        _fix(wanted, ()),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Compare the names of one file, where all that are taken are known."""
    taken = [_name(each, "name") for each in script.calls(f"{RPC}.init_rpc")]
    names = [each for made in taken for each in _texts(script, made)]
    if len(names) < SEVERAL or not all(names):
        return  # one name alone: the others are taken in another file
    patterns = [each for each in names if each is not None]
    for call in (each for name in CALLS for each in script.calls(name)):
        wanted = _name(call, "to" if call.args or keyword(call, "to") is not None else "worker_name")
        if not isinstance(wanted, ast.Constant) or not isinstance(wanted.value, str):
            continue
        if not any(re.fullmatch(each, wanted.value) for each in patterns):
            known = [_shown(each) for each in patterns]
            yield Finding(
                f"{wanted.value!r} is called, and the ranks are called {' and '.join(dict.fromkeys(known))}",
                (script.seen(call, "a name that a rank has given to init_rpc"),),
                _fix(wanted.value, tuple(each for each in known if "{" not in each)),
                script.place(call),
            )


def _name(call: ast.Call, argument: str) -> ast.expr | None:
    return keyword(call, argument) or (call.args[0] if call.args else None)


def _texts(script: Script, node: ast.expr | None) -> list[str | None]:
    """Return the names that an expression can give, as patterns; with None where one is not known."""
    node = script.value(node) if node is not None else None
    match node:
        case ast.Constant(value=str(text)):
            return [re.escape(text)]
        case ast.JoinedStr(values=parts) if any(isinstance(each, ast.Constant) for each in parts):
            return ["".join(re.escape(str(each.value)) if isinstance(each, ast.Constant) else r".+" for each in parts)]
        case ast.IfExp(body=body, orelse=other):
            return [*_texts(script, body), *_texts(script, other)]
    return [None]


def _shown(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern.replace(".+", "{...}"))


def _fix(wanted: str, known: tuple[str, ...]) -> Fix:
    meant = closest(wanted, known)
    return Fix(
        "call the worker by the name that it has given to init_rpc",
        diff=f'-rpc.rpc_sync("{wanted}", ...)\n+rpc.rpc_sync("{meant or "NAME_GIVEN_TO_INIT_RPC"}", ...)',
    )
