"""Which calls of a source wrap a model, and which variable holds the wrapper."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR, DDP, keyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.check import Script

PREPARES = {
    **dict.fromkeys(("lightning.fabric.Fabric", "lightning.Fabric", "lightning_fabric.Fabric"), "setup"),
    ACCELERATOR: "prepare",
}
"""What returns the wrapped model of a framework in the place of the one that it is given."""


def wrappers(script: Script) -> Iterator[tuple[ast.Call, str, ast.expr | None]]:
    """Yield the calls that wrap a model, the one variable that holds the wrapper, and what was wrapped."""
    for wrap in script.calls(DDP):
        match script.tree.statement(wrap):
            case ast.Assign(targets=[ast.Name(id=wrapper)], value=value) if value is wrap:
                yield wrap, wrapper, wrap.args[0] if wrap.args else keyword(wrap, "module")
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)],
                value=ast.Call(func=ast.Attribute(value=owner, attr=method), args=handed) as call,
            ) if method in PREPARES.values() and len(names) == len(handed):
                if script.made_by(owner, *(each for each, own in PREPARES.items() if own == method)):
                    for name, each in zip(names, handed, strict=True):
                        if isinstance(name, ast.Name) and isinstance(each, ast.Name) and _is_model(script, each):
                            yield call, name.id, each
            case ast.Assign(
                targets=[ast.Name(id=wrapper)],
                value=ast.Call(func=ast.Attribute(value=owner, attr=method), args=[ast.Name() as bare]) as call,
            ) if method in PREPARES.values() and _is_model(script, bare):
                if script.made_by(owner, *(each for each, own in PREPARES.items() if own == method)):
                    yield call, wrapper, bare


def _is_model(script: Script, name: ast.Name) -> bool:
    """Whether what a variable holds is asked what only a model is."""
    above = (script.tree.parents[each] for each in script.tree.read.get(name.id, []))
    return any(isinstance(each, ast.Attribute) and each.attr in OF_A_MODEL for each in above)


OF_A_MODEL = frozenset("parameters named_parameters modules named_modules train eval".split())


ASKED = frozenset("parameters named_parameters state_dict load_state_dict train eval register_comm_hook module".split())
"""What is asked of a wrapper beside a forward."""
TAKEN = frozenset("accumulate unwrap_model register_for_checkpointing".split())
"""Methods of an Accelerator that call none of what they are handed."""


def is_only_asked(script: Script, wrapper: str, since: int = 0) -> bool:
    """Whether nothing that stands below a line calls a wrapper, or gets hold of it."""
    above = [script.tree.parents[each] for each in script.tree.read.get(wrapper, []) if each.lineno > since]
    return all(
        (isinstance(each, ast.Attribute) and each.attr in ASKED)
        or (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in TAKEN)
        for each in above
    )
