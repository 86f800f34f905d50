"""The whole state of FSDP's optimizer that a source loads as it is, and what would make this rank's part of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Fix, last_name

if TYPE_CHECKING:
    from ddpdoctor.check import Tree

GIVES = frozenset({"optim_state_dict", "full_optim_state_dict"})
CONVERTS = re.compile(
    r"optim_state_dict_to_load|set_(?:optimizer_)?state_dict|(?:shard|scatter)_full_optim_state_dict|rekey_optim\w*"
)
TO_LOAD = Fix(
    "have FSDP make this rank's part of it first",
    diff='-optimizer.load_state_dict(checkpoint["optimizer"])\n'
    '+state = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optimizer"])   # on all ranks\n'
    "+optimizer.load_state_dict(state)",
)


def loaded_as_they_are(tree: Tree) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield the calls of an optimizer's ``load_state_dict`` in a file that saves its state by FSDP.

    Beside each is the call that gives the state; none where the file makes parts of it anywhere.
    """
    calls = tree.of(ast.Call)
    if any(CONVERTS.fullmatch(last_name(each.func)) for each in calls):
        return
    saved: dict[str, ast.Call] = {}
    for each in calls:
        match each:
            case ast.Call(func=ast.Attribute(attr=name, value=owner), args=[_, optimizer, *_]) if name in GIVES:
                if re.fullmatch(r"FSDP|FullyShardedDataParallel", last_name(owner)):
                    saved[last_name(optimizer)] = each
    for each in calls if saved else ():
        match each:
            case ast.Call(func=ast.Attribute(attr="load_state_dict", value=owner)) if last_name(owner) in saved:
                yield each, saved[last_name(owner)]
