"""A file that one rank asks for again and again, and that never comes to be where it asks."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Doing,
    Evidence,
    Finding,
    Fix,
    Position,
    Site,
    are_alternatives,
    calls_at,
    own_path,
    place,
    question,
    tree_of,
    unmade,
)

from ..hangs._told import seen, short, where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddpdoctor.check import OwnPath, Stalled

EXISTS = re.compile(r"\b(?:exists|is_file|isfile|is_dir|isdir|glob|listdir)\(")
MAKES = frozenset(
    "rename replace move touch write_text write_bytes save save_file save_pretrained dump symlink symlink_to mkdir"
    " makedirs copy copyfile copytree".split()
)
WRITES = re.compile(r"[wax][bt+]{0,2}")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class MadeBehind(NamedTuple):
    """The rank that asks, the one that waits, the line at which that one makes what is asked for; what is asked."""

    asks: Position
    waits: Position
    line: Site
    loop: str


def made_behind(event: Stalled) -> MadeBehind | None:
    """Find it in a function that both ranks are in: a call below the collective, with a name that was handed down."""
    for asks in event.doing(Doing.ASKING):
        loop = str(question(asks.site.file, asks.site.line) or "") if asks.site else ""
        if not EXISTS.search(loop):
            continue
        for waits in event.doing(Doing.WAITING):
            for one in asks.stack:
                for other in waits.stack:
                    if (one.file, one.function) == (other.file, other.function) and one.line != other.line:
                        for line in _makes(other, _names(one) | _names_in(loop)):
                            return MadeBehind(asks, waits, line, loop)
    return None


def told_by_its_file(event: Stalled) -> Finding | None:
    """Return that a file never comes: made behind the collective that its maker waits in, or by each rank elsewhere."""
    if behind := made_behind(event):
        return _told_as_made_behind(behind, event)
    asking = ((each, own_path(each.site.file, each.site.line)) for each in event.doing(Doing.ASKING) if each.site)
    return next((_told_as_own(asks, found, event) for asks, found in asking if found is not None), None)


def told_unmade(busy: Position) -> str:
    """Return which file a rank asks for, where no line of its script makes one of the name, and which it makes."""
    site = busy.site if busy.doing is Doing.ASKING else None
    found = unmade(site.file, site.line) if site is not None else None
    if found is None or site is None:
        return ""
    wanted, made = found
    alike = get_close_matches(wanted, made, n=1, cutoff=0.5)
    told = ", ".join(f"{each!r} (line {made[each]})" for each in alike or [*made][:3])
    return f", for {wanted!r}, which no line of {short(site).partition(':')[0]} makes (it makes {told})"


def _told_as_own(asks: Position, found: OwnPath, event: Stalled) -> Finding:
    name = short(asks.site).partition(":")[0]
    return Finding(
        f"rank {asks.rank} {where(asks)}, for a file in a place of its own: {found.made} at {name}:{found.line} "
        f"returns another one in each process, so what another rank makes at {name}:{found.makes} never comes there",
        (
            Evidence(found.made, "the same path on all ranks", f"{asks.site.file}:{found.line}" if asks.site else ""),
            *seen(event),
        ),
        Fix(
            "let rank 0 make the path, and tell it to all, before any rank uses it",
            diff=f"-path = {found.made}\n+path = [{found.made} if dist.get_rank() == 0 else None]\n"
            "+dist.broadcast_object_list(path, src=0)\n+path = path[0]",
        ),
        place(asks.site and Site(asks.site.file, found.line, ""), rank=asks.rank),
    )


def _told_as_made_behind(found: MadeBehind, event: Stalled) -> Finding:
    """Return that neither rank can go on."""
    asks, waits, line = found.asks, found.waits, found.line
    return Finding(
        f"rank {asks.rank} {where(asks)}, until `{found.loop.removeprefix('while ').removeprefix('not ')}`; rank "
        f"{waits.rank} makes that at {short(line)}, behind the {waits.operation} at {short(waits.site)} in which it "
        f"waits for rank {asks.rank}",
        (Evidence(found.loop, "what is there before the others wait", f"rank {asks.rank}, {asks.site}"), *seen(event)),
        Fix(
            f"call {waits.operation} once the file is there",
            diff=f"-{waits.operation}(...)\n     ...   # {short(line)}\n+{waits.operation}(...)",
        ),
        place(line, rank=waits.rank),
    )


def _makes(at: Site, names: set[str]) -> Iterator[Site]:
    """Yield the lines of a function below another one, in the same branch, that make a file of one of these names."""
    tree = tree_of(at.file)
    here = next(iter(calls_at(at.file, at.line)), None)
    blocks = [each for each in tree.above(here) if isinstance(each, (ast.If, *FUNCTIONS))] if here is not None else []
    for call in tree.of(ast.Call):
        above = [each for each in tree.above(call) if isinstance(each, (ast.If, *FUNCTIONS))]
        is_behind = call.lineno > at.line and bool(above) and above[0] in blocks
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        named = _held([*owner, *call.args, *(each.value for each in call.keywords)])
        if (
            is_behind
            and not are_alternatives(at.file, at.line, call.lineno)
            and (ast.unparse(call.func).rpartition(".")[2] in MAKES or _opens_to_write(call))
            and named & names
        ):
            yield Site(at.file, call.lineno, at.function)


def _opens_to_write(call: ast.Call) -> bool:
    """Whether a call opens a file that is made by it."""
    modes = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
    said = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return ast.unparse(call.func).rpartition(".")[2] == "open" and any(WRITES.fullmatch(each) for each in said)


def _names(at: Site) -> set[str]:
    return {name for call in calls_at(at.file, at.line) for name in _held(call.args)}


def _held(values: Iterable[ast.expr]) -> set[str]:
    """Return the names, and the attributes of ``self``, in expressions; not those of what they call."""
    nodes = [each for value in values for each in ast.walk(value)]
    called = {id(part) for each in nodes if isinstance(each, ast.Call) for part in ast.walk(each.func)}
    owners = {id(each.value) for each in nodes if isinstance(each, ast.Attribute)}
    return {
        ast.unparse(each)
        for each in nodes
        if isinstance(each, (ast.Name, ast.Attribute)) and id(each) not in called
        if (isinstance(each, ast.Name) and ast.unparse(each) != "self") or id(each) not in owners
    }


def _names_in(loop: str) -> set[str]:
    asked = re.search(r"\b(\w+)\.(?:exists|is_file|is_dir)\(|\b(?:exists|isfile|isdir)\((\w+)", loop)
    return {each for each in asked.groups() if each} - {"os", "path"} if asked else set()
