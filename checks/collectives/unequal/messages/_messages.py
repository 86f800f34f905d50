"""Why a message that a rank waits for was not sent: with another tag, or its line was passed by."""

from __future__ import annotations

import ast
from dataclasses import replace
from linecache import getline
from typing import TYPE_CHECKING, NamedTuple

from ddpdoctor.check import (
    Communication,
    Evidence,
    Finding,
    Fix,
    Position,
    Site,
    are_alternatives,
    place,
    resolve,
    tree_of,
)

from ...hangs._messages import begun, named_peer
from ...hangs._pairs import tagged_apart
from ...hangs._told import seen, short, table

if TYPE_CHECKING:
    from ddpdoctor.check import Stalled, Tree

SENDS = frozenset({"torch.distributed.send", "torch.distributed.isend"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.For, ast.AsyncFor, ast.While, *FUNCTIONS, ast.Module)


def other_tag(event: Stalled) -> Finding | None:
    """Find a send and the receive that was meant for it, which have different tags: of all calls, or of the latest."""
    if found := tagged_apart(event.ranks):
        apart = _tags(found.other, found.gives, found.rank, found.takes)
        shift = _shift(event, found.other, found.rank)
        return _shifted(apart, shift, found.takes) if shift else apart
    for sends in event.ranks:
        for receives in event.ranks:
            gives, takes = begun(sends), begun(receives)
            to, of = (named_peer(each) if each else None for each in (gives, takes))
            is_pair = sends.operation.endswith("send") and receives.operation.endswith("recv")
            if not (gives and takes and to and of and is_pair):
                continue
            if (to[0], of[0]) == (receives.rank, sends.rank) and to[1] != of[1]:
                return _tags(sends.rank, gives, receives.rank, takes)
    return None


def _tags(sender: int, gives: Communication, receiver: int, takes: Communication) -> Finding:
    given, taken = (tag[1] if (tag := named_peer(each)) else 0 for each in (gives, takes))
    return Finding(
        f"rank {sender} sends to rank {receiver} with tag {given} at {short(gives.site)}, and rank {receiver} waits "
        f"for tag {taken} at {short(takes.site)}",
        (
            Evidence(f"tag={given}", f"tag={taken}", f"rank {sender}, {gives.site}"),
            Evidence(f"tag={taken}", f"tag={given}", f"rank {receiver}, {takes.site}"),
        ),
        Fix(
            "give both sides the same tag",
            diff=f"-dist.recv(x, {sender}, tag={taken})\n+dist.recv(x, {sender}, tag={given})",
        ),
        place(takes.site, rank=receiver),
    )


def _shift(event: Stalled, sender: int, receiver: int) -> int:
    """Return by how much all tags of the receives are higher than those of the sends; 0 where they are not so."""
    recent = {each.rank: each.recent for each in event.ranks}
    gives, takes = (
        sorted(tag[1] for call in calls if call.operation == name and (tag := named_peer(call)) and tag[0] == peer)
        for calls, name, peer in ((recent[sender], "send", receiver), (recent[receiver], "recv", sender))
    )
    apart = {theirs - ours for ours, theirs in zip(gives, takes, strict=False)}
    return apart.pop() if len(gives) == len(takes) > 1 and len(apart) == 1 else 0


def _shifted(found: Finding, shift: int, takes: Communication) -> Finding:
    """Return that every tag is off by as much, which one change mends."""
    way, by = ("higher", shift) if shift > 0 else ("lower", -shift)
    source = getline(takes.site.file, takes.site.line).strip() if takes.site else ""
    return replace(
        found,
        message=f"{found.message}: all tags of the receives are {by} {way} than those of the sends",
        fix=Fix(
            "give both sides the same tag",
            diff=f"-{source or 'dist.recv(x, source, tag=tag)'}\n"
            f"+dist.recv(x, source, tag=tag)   # {by} {'less' if shift > 0 else 'more'} than now",
        ),
    )


class Passed(NamedTuple):
    """A line that sends, and the test that keeps a rank from it."""

    line: int
    test: str


def passed_by(event: Stalled) -> Finding | None:
    """Find a rank that waits for a message itself, and has passed by the one line that would send what is awaited."""
    ranks = {each.rank: each for each in event.ranks}
    for waits in event.ranks:
        call = begun(waits)
        peer = named_peer(call) if call is not None and call.operation == "recv" else None
        other = ranks.get(peer[0]) if peer else None
        if other is None or other is waits or not other.operation.endswith("recv"):
            continue
        passed = _passed(other)
        if passed is not None and other.site is not None:
            return _not_sent(event, waits, other, passed)
    return None


def _not_sent(event: Stalled, waits: Position, other: Position, passed: Passed) -> Finding:
    file = other.site.file if other.site else ""
    at = Site(file, passed.line, "")
    return Finding(
        f"rank {waits.rank} waits for a message of rank {other.rank} at {short(waits.site)}, and rank {other.rank} has "
        f"passed by the line that sends one, {short(at)}, {passed.test}: it waits to receive at {short(other.site)}",
        (Evidence(f"{short(at)} has not been run, {passed.test}", "a send", f"rank {other.rank}"), *seen(event)),
        Fix(
            "send on one side wherever the other one receives: let both decide by the same test",
            diff="-if send_it:\n-    dist.send(x, dst)\n+dist.send(x, dst)",
        ),
        place(at, rank=other.rank),
        table=table(event),
    )


def _passed(position: Position) -> Passed | None:
    """Return the one send of the loop, or of the function, that a rank is in, which stands under a test, unsent."""
    site = position.site
    if site is None:
        return None
    tree = tree_of(site.file)
    block = _block(tree, site.line)
    if block is None:
        return None
    home = block if isinstance(block, FUNCTIONS) else tree.function(block)
    made = _lines_run(position, site)
    sends = [
        each
        for each in tree.of(ast.Call)
        if resolve(tree, each.func) in SENDS and tree.function(each) is home and block in tree.above(each)
        if each.lineno not in made and not are_alternatives(site.file, site.line, each.lineno)
    ]
    found = [Passed(each.lineno, test) for each in sends if (test := _test(tree, each, site.line))]
    return found[0] if len(found) == len(sends) == 1 else None


def _lines_run(position: Position, site: Site) -> set[int]:
    """Return the lines that a rank has called from, but for those that it has passed by since its call before."""
    lines = [each.site.line for each in position.recent if each.site is not None and each.site.file == site.file]
    before = position.recent[-2].site if len(position.recent) > 1 else None
    if before is None or (before.file, before.function) != (site.file, site.function):
        return {*lines}
    return {*lines} - {*range(before.line + 1, site.line)}


def _block(tree: Tree, line: int) -> ast.AST | None:
    """Return the innermost loop around a line, or else its function."""
    around = [each for each in tree.nodes if isinstance(each, BLOCKS) and _has(each, line)]
    return max(around, key=lambda each: getattr(each, "lineno", 0), default=None)


def _has(node: ast.AST, line: int) -> bool:
    return isinstance(node, ast.Module) or node.lineno <= line <= (node.end_lineno or 0)  # type: ignore[attr-defined]


def _test(tree: Tree, call: ast.Call, line: int) -> str:
    """Return in words the innermost test around a call that is not around a line; empty where there is none."""
    inner: ast.AST = call
    for each in tree.above(call):
        if isinstance(each, ast.If) and not _has(each, line) and inner is not each.test:
            other = "" if inner in each.body else "the else of "
            return f"under {other}`if {ast.unparse(each.test)}`"
        inner = each
    return ""
