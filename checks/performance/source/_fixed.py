"""Expressions that have the same value in each step: they read numbers, shapes and what is made of these alone."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable

from ddpdoctor.check import Tree, dotted, last_name, resolve

Fixed = Callable[[ast.Name], bool]
"""Whether a name that is bound where an expression stands has the same value in each step."""
SHAPES = {"shape", "device", "dtype", "ndim", "is_cuda"}
MEASURES = {"size", "dim", "numel", "stride", "new_zeros", "new_ones", "new_full", "new_tensor"}
"""What depends on the shape, the type and the device of who is asked, and on what is given."""
LIKE = {"torch.zeros_like", "torch.ones_like", "torch.full_like", "len"}
SAME_AS = {"to", "type_as", "expand_as", "view_as"}
PURE = ("torch.", "numpy.", "math.")
BUILTINS = {
    "range", "int", "float", "bool", "str", "abs", "min", "max", "sum", "round", "list", "tuple", "set", "dict", "zip",
    "enumerate", "reversed", "sorted", "slice", "pow", "divmod", "any", "all",
}  # fmt: skip
CHANCE = re.compile(
    r"rand|(^|[._])(normal|uniform|bernoulli|multinomial|poisson|exponential|geometric|cauchy|log_normal|gumbel_softmax|"
    r"shuffle|choice|sample|\w*dropout\w*|\w*seed|Generator|load\w*|save\w*|open|memmap|from_?file|empty\w*|time\w*|"
    r"compile)_?$|distributed|\.jit\.|\bnn\.(?!functional)"
)
"""What is drawn by chance, read from elsewhere, or not set."""
SETTINGS = re.compile(r"(\w*\.)?_?(args|arguments|config|cfg|conf|hparams|hyperparams|options|opts?|settings)\.[\w.]+$")
COUNTS = re.compile(r"\.(arange|zeros|ones|full|eye|linspace|Linear|Embedding|Conv\dd|LayerNorm)$|^range$")
SHAPED = {"view", "reshape", "expand", "repeat", "chunk", "split", "unflatten", "repeat_interleave"}
NUMBERS = {"int", "float", "bool", "str"}


def is_fixed(tree: Tree, node: ast.AST, fixed: Fixed) -> bool:  # noqa: PLR0911 - one a kind
    """Whether an expression has the same value in each step, as far as the source says it."""
    match node:
        case ast.Constant():
            return True
        case ast.Name():
            return fixed(node)
        case ast.Attribute():
            return _is_fixed_attribute(tree, node, fixed)
        case ast.Call():
            return _is_fixed_call(tree, node, fixed)
        case ast.ListComp(elt=elt, generators=through) | ast.GeneratorExp(elt=elt, generators=through):
            bound = {each.id for one in through for each in ast.walk(one.target) if isinstance(each, ast.Name)}
            parts = [elt, *(each.iter for each in through), *(test for each in through for test in each.ifs)]
            return all(is_fixed(tree, each, lambda name: name.id in bound or fixed(name)) for each in parts)
        case (
            ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp() | ast.Tuple() | ast.List()
            | ast.Slice() | ast.Subscript() | ast.Starred() | ast.JoinedStr() | ast.FormattedValue()
        ):  # fmt: skip
            return all(is_fixed(tree, each, fixed) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
    return False


def _is_fixed_call(tree: Tree, call: ast.Call, fixed: Fixed) -> bool:
    given = [*call.args, *(each.value for each in call.keywords)]
    named = resolve(tree, call.func) or ""
    if named in LIKE:
        return all(is_fixed(tree, each, fixed) for each in given[1:])
    if isinstance(call.func, ast.Attribute) and call.func.attr in MEASURES:
        return all(is_fixed(tree, each, fixed) for each in given)
    if named in BUILTINS or named.startswith(PURE):
        return not CHANCE.search(named) and all(is_fixed(tree, each, fixed) for each in given)
    if not isinstance(call.func, ast.Attribute) or CHANCE.search(call.func.attr):
        return False
    if not is_fixed(tree, call.func.value, fixed):
        return False
    return call.func.attr in SAME_AS or all(is_fixed(tree, each, fixed) for each in given)


def _is_fixed_attribute(tree: Tree, node: ast.Attribute, fixed: Fixed) -> bool:
    text = dotted(node) or ""
    if node.attr in SHAPES or SETTINGS.match(text) or (resolve(tree, node) or "").startswith(PURE):
        return True
    if text.startswith("self.") and text.count(".") == 1:
        return _is_number_of_self(tree, tree.class_of(node), text)
    return is_fixed(tree, node.value, fixed) and not isinstance(node.value, ast.Name)


def is_left_alone(tree: Tree, text: str, value: ast.expr) -> bool:
    """Whether nothing in the file adds to what a name, or an attribute, was bound to, or changes it in place."""
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return False
    if isinstance(value, ast.Call) and (resolve(tree, value.func) or "") in {"list", "dict", "set"}:
        return False
    parts: list[ast.Attribute | ast.Subscript] = [*tree.of(ast.Attribute), *tree.of(ast.Subscript)]
    for node in parts:
        if dotted(node.value) != text:
            continue
        if isinstance(node.ctx, ast.Store) or (isinstance(node, ast.Attribute) and node.attr.endswith("_")):
            return False
    return True


def _is_number_of_self(tree: Tree, owner: ast.ClassDef | None, text: str) -> bool:
    """Whether an attribute is bound in ``__init__`` alone, to a number of its own or one that it is given."""
    bindings = tree.attributes.get((owner, text), [])
    for each in bindings:
        function = tree.function(each.node)
        if each.value is None or not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            return False
        if not is_fixed(tree, each.value, functools.partial(_is_number, tree, owner, function, text)):
            return False
        if not is_left_alone(tree, text, each.value):
            return False
    return bool(bindings)


def _is_number(tree: Tree, owner: ast.ClassDef | None, init: ast.FunctionDef, text: str, name: ast.Name) -> bool:
    """Whether a parameter of ``__init__`` is a number: as annotated, by its default, or by what it is used for."""
    arguments = init.args
    places = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([each.arg for each in places[::-1]], arguments.defaults[::-1], strict=False))
    defaults |= {
        each.arg: default
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    given = next((each for each in (*places, *arguments.kwonlyargs) if each.arg == name.id), None)
    if given is None:
        return False
    default = defaults.get(name.id)
    if isinstance(default, ast.Constant) and default.value is not None:
        return True
    if isinstance(given.annotation, ast.Name) and given.annotation.id in NUMBERS:
        return True
    return bool(_counted(tree, owner) & {name.id, text})


def _counted(tree: Tree, owner: ast.ClassDef | None) -> set[str | None]:
    """Return the names and attributes of a class that sizes are made of."""
    found: set[str | None] = set()
    for node in ast.walk(owner) if owner is not None else ():
        match node:
            case ast.Call(func=func, args=args):
                if COUNTS.search(resolve(tree, func) or "") or last_name(func) in SHAPED:
                    found |= {dotted(each) for each in args}
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod(), left=left, right=right):
                found |= {dotted(left), dotted(right)}
    return found - {None}
