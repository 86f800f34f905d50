"""What each process has for itself: a path, a name or a value that is another on each rank."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.arguments import default_of, given as argument_of
from ddpdoctor.source.reach.parts import parts
from ddpdoctor.source.reach.rankish import OF_PLACES, is_rankish, is_shared
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.text.tree import FUNCTIONS
from ddpdoctor.source.values.arguments import passed, placed_argument
from ddpdoctor.source.values.bound import OPTIONS, at, definition, given, returned, values
from ddpdoctor.source.values.sites import SPAWN, call_sites

if TYPE_CHECKING:
    from ddpdoctor.source.text.bindings import Binding
    from ddpdoctor.source.text.tree import Tree

PERSONAL = re.compile(r"temp|tmp|uuid|getpid|BytesIO|StringIO|buffer|stream|datetime|time|rand|seed|hostname|socket")
"""Words of what each process has for itself."""
OF_HYDRA = re.compile("cwd")
"""What each has for itself where hydra runs it in a folder of its own."""
SHOWN = re.compile(r"(?:tqdm(?:\.\w+)*\.tqdm|enumerate|reversed|sorted)$")
"""What goes through what it is given, in an order that is the same everywhere."""
FREE = re.compile(r"\b(?:exists|isdir|is_dir|glob|listdir|iterdir|scandir)\(")
"""How a function asks which files there are."""
COUNTED = re.compile(r"(?:range|tqdm(?:\.\w+)*\.trange)$")
LITERALS = (ast.Dict, ast.List, ast.Tuple, ast.Set)


def is_personal(tree: Tree, node: ast.expr, depth: int = 6, seen: set[ast.AST] | None = None) -> bool:
    """Whether an expression is made of what each process has for itself, or of something that cannot be followed.

    ``seen`` are the statements that were looked at on the way: a variable that is made of itself is what else it is
    made of, and one that others are made of as well was not personal before.
    """
    seen = set() if seen is None else seen
    for each in parts(node):
        text = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        if PERSONAL.search(text) and not _is_given_here(tree, each):
            return True
        if OF_HYDRA.search(text) and "hydra" in tree.read:
            return True
        is_named = isinstance(each, (ast.Name, ast.Attribute)) and not OPTIONS.match(text)
        if not is_named or not isinstance(each, ast.expr) or is_shared(tree, each, 1):
            continue
        if _is_own(each):
            continue
        held = [binding for binding in at(tree, each) if not _counts_passes(tree, binding, text)]
        if not held and isinstance(each, ast.Attribute) and _is_own(each.value):
            answers = _of_property(tree, each) if depth else []
            if any(is_rankish(tree, answer, words=OF_PLACES) for answer in answers):
                return True
            if not answers or any(is_personal(tree, answer, depth - 1, seen) for answer in answers):
                return True  # of an object, stored where it is not seen
        if any(_is_personal(tree, binding, depth, seen) for binding in held):
            return True
    return False


def _is_given_here(tree: Tree, node: ast.AST) -> bool:
    """Whether a variable is given all its values where they can be seen, which say more than its name does."""
    held = at(tree, node) if isinstance(node, ast.Name) else []
    return bool(held) and all(each.value is not None for each in held)


def _is_own(node: ast.AST) -> bool:
    """Whether it is the object whose method this is: what it holds is asked for by the names of its attributes."""
    return isinstance(node, ast.Name) and node.id == "self"


def _of_property(tree: Tree, node: ast.Attribute) -> list[ast.expr]:
    """Return what a property of the object whose method this is returns; nothing where there is none of the name."""
    found = [each.node for each in tree.bindings.get(tree.class_of(node) or tree.module, {}).get(node.attr, [])]
    match found:
        case [ast.FunctionDef(decorator_list=[ast.Name(id="property")]) as function]:
            return list(returned(tree, function))
    return []


def _is_shared_abroad(tree: Tree, parameter: ast.arg, depth: int) -> bool:
    """Whether the other files that alone call a function pass the same on all ranks for a parameter."""
    function = tree.function(parameter)
    if tree.callers is None or not isinstance(function, ast.FunctionDef) or call_sites(tree, function) != []:
        return False
    calls = tree.callers(function) or (tree.relays(function) if tree.relays is not None else [])
    handed = [
        placed_argument(tree, (there, site), function, parameter.arg, spawned=resolve(there, site.func) in SPAWN)
        for there, site in calls
    ]
    return bool(handed) and all(
        each is not None and not is_rankish(there, each, words=OF_PLACES) and not is_personal(there, each, depth - 1)
        for there, each in handed
    )


def _is_path_by_default(tree: Tree, parameter: ast.arg) -> bool:
    """Whether a function that nobody is seen calling takes the same path on all ranks where it is told nothing else."""
    function = tree.function(parameter)
    default = default_of(function, parameter.arg) if isinstance(function, ast.FunctionDef) else None
    is_text = isinstance(default, ast.Constant) and isinstance(default.value, str) and "/" in default.value
    return is_text and not OF_PLACES.search(parameter.arg)


def _is_told(tree: Tree, iterated: ast.expr) -> bool:
    """Whether a loop counts, or goes through what stands in the source (``for split in ("train", "test")``).

    Its variable is the same on all ranks in each pass.
    """
    while isinstance(iterated, ast.Call) and iterated.args and SHOWN.match(resolve(tree, iterated.func) or ""):
        iterated = iterated.args[0]
    bar = values(tree, iterated) if isinstance(iterated, ast.Name) else []
    if len(bar) == 1 and isinstance(bar[0].node, ast.withitem):  # ``with trange(100) as steps:``
        iterated = bar[0].node.context_expr
    if isinstance(iterated, ast.Call) and COUNTED.match(resolve(tree, iterated.func) or ""):
        return True
    match iterated:
        case ast.Call(func=ast.Attribute(value=inner, attr="keys" | "items" | "values"), args=[]):
            iterated = inner
    given = [each.value for each in values(tree, iterated)] if isinstance(iterated, ast.Name) else [iterated]
    return bool(given) and all(each is not None and _stands_here(each, iterated) for each in given)


def _stands_here(value: ast.expr, name: ast.expr) -> bool:
    """Whether it is written out, or is what a variable has held so far and more: ``parts = (first,) + parts``."""
    match value:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _stands_here(left, name) and _stands_here(right, name)
        case ast.Name(id=same):
            return isinstance(name, ast.Name) and same == name.id
    return isinstance(value, LITERALS)


def _asks_for_files(tree: Tree, value: ast.expr) -> bool:
    """Whether a function of the project looks for a name that is free: what one rank has made changes its answer."""
    found = definition(tree, value.func) if isinstance(value, ast.Call) else None
    return found is not None and not isinstance(found[1], ast.Lambda) and FREE.search(ast.unparse(found[1])) is not None


def _counts_passes(tree: Tree, binding: Binding, name: str) -> bool:
    """Whether a variable is the number of the pass in ``for step, batch in enumerate(loader)``: no matter of what."""
    loop = binding.node
    if not isinstance(loop, (ast.For, ast.comprehension)) or not isinstance(loop.target, ast.Tuple):
        return False
    iterated, first = loop.iter, loop.target.elts[0]
    while isinstance(iterated, ast.Call) and iterated.args and SHOWN.match(path := resolve(tree, iterated.func) or ""):
        if path == "enumerate":
            start = argument_of(iterated, 1, "start")
            is_plain = start is None or isinstance(start, ast.Constant)
            return is_plain and isinstance(first, ast.Name) and first.id == name
        iterated = iterated.args[0]
    return False


OF_DATACLASSES = frozenset("parse_args_into_dataclasses parse_json_file parse_yaml_file parse_dict".split())
"""Methods of transformers' HfArgumentParser, which fills classes of options."""


def _holds_options(binding: Binding) -> bool:
    """Whether a variable takes a part of what a parser returns: the options, which the ranks are started with alike."""
    made = binding.whole if binding.whole is not None else binding.value
    return isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in OF_DATACLASSES


def _is_personal(tree: Tree, binding: Binding, depth: int, seen: set[ast.AST]) -> bool:
    if (
        binding.path
        or isinstance(binding.node, (*FUNCTIONS, ast.ClassDef))
        or binding.node in seen
        or _holds_options(binding)
    ):
        return False
    if not isinstance(binding.node, ast.arg):
        seen.add(binding.node)
    if depth == 0 or (binding.value is not None and _asks_for_files(tree, binding.value)):
        return True
    if isinstance(binding.node, (ast.For, ast.comprehension)) and _is_told(tree, binding.node.iter):
        return is_rankish(tree, binding.node.iter, words=OF_PLACES)
    if isinstance(binding.node, ast.arg):
        passed_on = passed(tree, binding)
        if passed_on is None:
            return not (_is_shared_abroad(tree, binding.node, depth) or _is_path_by_default(tree, binding.node))
        return any(is_personal(tree, each, depth - 1, seen) for each in passed_on)
    added = binding.node.value if isinstance(binding.node, ast.AugAssign) else binding.value
    held = given(tree, binding) if added is None else [(tree, added)]
    return held is None or any(is_personal(there, each, depth - 1, seen) for there, each in held)
