"""A rank is text: read from the command line or the environment, and not converted.

## What happens

`add_argument("--local_rank")` without `type=int` gives the text "1". `args.local_rank == 0` is then never true, so that
nobody prints or saves; `init_process_group(rank="1")` raises a RuntimeError, and so does `set_device("1")`.

A variable of the environment is text as well: `os.environ["RANK"]` given to DistributedSampler or to
`torch.device("cuda", ...)` is a TypeError.

## How to be sure

In a source (`ddpdoctor lint`): the option has no type, and its value is compared with a number, or is given to
torch where a number is wanted, unconverted.

## How to mend it

    parser.add_argument("--local_rank", type=int, default=0)

## Versions and sources

Source: argparse documentation, "type". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import INIT, Ailment, Finding, Fix, Record, Severity, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Edit, Script

AILMENT = Ailment("DDP472", Severity.ERROR)
OPTIONS = {"rank", "local_rank", "world_size", "node_rank", "nodes", "nproc_per_node"}


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for such an option without a type, and for a use of its value as a number."""
    for name, option in script.options().items():
        if name not in OPTIONS or any(word.arg in {"type", "action", None} for word in option.keywords):
            continue
        use = _use(script, name)
        if use is not None:
            yield Finding(
                f"--{name} is text: the option has no type=int",
                (script.seen(option, "type=int"), script.seen(use)),
                Fix("let the parser convert it", edits=_typed(script, option)),
                script.place(option),
            )


@log_pattern(
    r"`(?P<name>rank|world_size)` must be an integer\. (?P<value>\d+)\s*$"
    r"|device\(\): argument 'index' \(position 2\) must be int, not str"
    r"|RuntimeError: Invalid device string: '(?P<device>\d+)'"
    r"|data[/\\]distributed\.py\", line \d+, in __init__\n[^\n]*num_replicas[^\n]*\n(?:[ ~^]*\n)?"
    r"TypeError: '(?:<|>=)' not supported between instances of '(?:str|int)' and '(?:str|int)'"
    r"|rootRank = [^\n]*\n(?:[ ~^]*\n)?TypeError: [^\n]*incompatible function arguments"
    r"(?:(?:[^\n]*\n){1,5}Invoked with: <[^>\n]*>, '(?P<root>\d+)')?"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find where torch got text for a number."""
    name, value = match["name"], match["value"] or match["device"] or match["root"]
    sampler = "not supported" in match[0]
    given = f"{name}={value!r}" if name else f"the number {value!r}" if value else "a rank or a number of ranks"
    yield Finding(
        f"{'DistributedSampler is' if sampler else 'torch is'} given {given} as text",
        (record.proof(None if sampler else match, "a whole number: int(...)"),),
        Fix(
            "convert it where it is read",
            diff='-rank = os.environ["RANK"]\n+rank = int(os.environ["RANK"])',
        ),
        record.place,
    )


def _typed(script: Script, option: ast.Call) -> tuple[Edit, ...]:
    last = option.keywords[-1].value if option.keywords else option.args[-1]
    default = keyword(option, "default")
    is_text = isinstance(default, ast.Constant) and isinstance(default.value, str)
    return () if is_text else (script.replaced(last, f"{script.code(last)}, type=int"),)


def _use(script: Script, name: str) -> ast.AST | None:
    for node in script.nodes(ast.Compare, ast.Call):
        match node:
            case ast.Compare(left=left, comparators=[ast.Constant(value=int(value))]) if not isinstance(value, bool):
                if _is_option(script, left, name):
                    return node
            case ast.Call(args=[first, *_]) if script.resolve(node.func) == "torch.cuda.set_device":
                if _is_option(script, first, name):
                    return node
            case ast.Call() if script.resolve(node.func) == INIT:
                if any(_is_option(script, each, name) for each in (keyword(node, "rank"), keyword(node, "world_size"))):
                    return node
    return None


def _is_option(script: Script, node: ast.expr | None, name: str) -> bool:
    """Whether an expression is what the parser stored, which nothing in the file stores anew."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and not script.is_assigned(node)
        and script.is_parsed(node.value)
    )
