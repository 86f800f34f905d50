"""What a checkpoint is built of and what of it is given back, as the source says it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpdoctor.check import last_name

PROGRESS = re.compile(r"epoch|step|iter", re.IGNORECASE)
SCHEDULE = re.compile(r"sched|\blr_", re.IGNORECASE)
STEPS = {"step", "update", "update_parameters"}
HARMLESS = {"save", "print", "len", "isinstance", "type", "bool", "info", "debug", "keys", "sorted", "list"}


@dataclass(frozen=True, slots=True)
class Left:
    """A state that is saved by this key and not given back; beside it what is, and how far the training was."""

    key: str
    owner: str
    saved: int
    base: str
    read: str
    line: int
    progress: str
    progressed: int


@dataclass(slots=True)
class Read:
    """What is read of one dictionary: the line by key, and which of them ``load_state_dict`` is given, in order."""

    keys: dict[str, int] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)


def left_out(module: ast.Module) -> Iterator[Left]:
    """Find what is saved with other states and not given back where those are, and the training goes on."""
    saved = [each for each in ast.walk(module) if isinstance(each, ast.Dict)]
    built = [states for each in saved if len(states := _states(each)) > 1]
    reads = _reads(module) if len(built) == 1 else {}
    said = Counter(each.value for each in ast.walk(module) if isinstance(each, ast.Constant))
    for base, read in reads.items():
        (states,) = built
        told = (key for key in read.keys if PROGRESS.search(key) and key not in states)
        progress = next((key for key in told if _goes_on(base, key, module)), "")
        if not progress or not read.given or not read.given.keys() <= states.keys() or _is_handed_on(base, module):
            continue
        for key, (owner, line) in states.items():
            if said[key] == 1 and _is_used(owner, module):
                first, at = max(read.given.items(), key=lambda each: each[1])
                yield Left(key, owner, line, base, first, at, progress, read.keys[progress])


def _states(built: ast.Dict) -> dict[str, tuple[str, int]]:
    """Return whose state a dictionary has by which key, and the lines."""
    found = {}
    for key, value in zip(built.keys, built.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Call(func=ast.Attribute(value=owner, attr="state_dict")):
                found[name] = ast.unparse(owner), value.lineno
    return found


def _reads(module: ast.Module) -> dict[str, Read]:
    """Return what is read of each expression by constant keys; empty where a key is no constant."""
    found: dict[str, Read] = {}
    for node in ast.walk(module):
        if (read := _key_of(node)) is not None:
            base, key, line = read
            found.setdefault(base, Read()).keys.setdefault(key, line)
        loads = isinstance(node, ast.Call) and last_name(node.func) == "load_state_dict" and node.args
        if loads and (read := _key_of(node.args[0])) is not None:  # type: ignore[attr-defined]
            base, key, _ = read
            found.setdefault(base, Read()).given.setdefault(key, node.lineno)  # type: ignore[attr-defined]
    return found


def _key_of(node: ast.AST) -> tuple[str, str, int] | None:
    match node:
        case ast.Subscript(value=base, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            return ast.unparse(base), key, node.lineno
        case ast.Call(func=ast.Attribute(value=base, attr="get" | "pop"), args=[ast.Constant(value=str(key)), *_]):
            return ast.unparse(base), key, node.lineno
    return None


def _goes_on(base: str, key: str, module: ast.Module) -> bool:
    """Whether a loop begins with what is read by a key: in ``range``, under ``while``, or as a function's argument."""
    nodes = list(ast.walk(module))
    functions = {each.name for each in nodes if isinstance(each, ast.FunctionDef)}
    names = {
        last_name(target)
        for node in nodes
        if isinstance(node, ast.Assign) and _is_read(node.value, base, key)
        for target in node.targets
    } - {"", None}
    for node in nodes:
        match node:
            case ast.Call(func=called, args=args, keywords=keywords):
                given = [*args, *(each.value for each in keywords)]
                if last_name(called) in functions and any(_is_read(each, base, key) for each in given):
                    return True
                loops = given if last_name(called) in {"range", "trange", "islice"} else []
            case ast.While(test=test):
                loops = [test]
            case _:
                continue
        words = (part for each in loops for part in ast.walk(each) if isinstance(part, (ast.Name, ast.Attribute)))
        if any(last_name(each) in names for each in words) or any(_is_read(each, base, key) for each in loops):
            return True
    return False


def _is_read(value: ast.AST, base: str, key: str) -> bool:
    return any((read := _key_of(each)) is not None and read[:2] == (base, key) for each in ast.walk(value))


def _is_handed_on(base: str, module: ast.Module) -> bool:
    """Whether a dictionary is given to a function, held elsewhere, or gone through: it can be read there."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=called, args=args, keywords=keywords) if last_name(called) not in HARMLESS:
                given = [*args, *(each.value for each in keywords)]
            case ast.For(iter=iterated):
                owner = iterated.func.value if isinstance(iterated, ast.Call) and isinstance(
                    iterated.func, ast.Attribute) else iterated  # fmt: skip
                given = [owner]
            case ast.Return(value=ast.expr() as value) | ast.Assign(value=ast.expr() as value):
                given = [value]
            case ast.Dict(keys=keys, values=values):
                given = [value for key, value in zip(keys, values, strict=True) if key is None]
            case _:
                continue
        if any(ast.unparse(each) == base for each in given):
            return True
    return False


def _is_used(owner: str, module: ast.Module) -> bool:
    """Whether something is stepped or updated, and needs its state for that: no schedule that is brought there."""
    name = owner.rpartition(".")[2]
    calls = [each for each in ast.walk(module) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    steps = [
        each
        for each in calls
        if each.func.attr in STEPS  # type: ignore[attr-defined]
        and name in map(last_name, (each.func.value, *each.args))  # type: ignore[attr-defined]
    ]
    if SCHEDULE.search(owner):
        words = {each.arg for call in calls for each in call.keywords}
        return len(steps) == 1 and "last_epoch" not in words and not steps[0].args
    return bool(steps)
