"""Random generators that variables hold, and noise for samples that is drawn from them, as the source says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddpdoctor.check import HeldGenerator, Tree, last_name, tree_of

from .._streams import NOISE
from ._held import STATES
from ._in_forward import LIKE, OF_SAMPLES
from ._whole_numbers import drawn_for_samples

OF_WEIGHTS = re.compile(r"\b(p|w|params?|parameter|weights?|grad|each|theta)\b|parameters\(|state_dict")
"""Noise for weights, which all ranks have to draw alike."""


def draws_noise_for_samples(held: HeldGenerator) -> bool:
    """Whether all that a file draws from a variable of this name is noise for samples, or numbers that choose none.

    A loop over parameters, or their shape, says that it is noise for weights. Functions of the file draw from it by the
    name of their parameter. Whoever else is given the generator by a keyword, as a loader or a sampler, can draw an
    order from it.
    """
    if held.kind or not held.file:
        return False
    tree = tree_of(held.file)
    loops = [each for each in tree.of(ast.For) if OF_WEIGHTS.search(ast.unparse(each.iter))]
    of_weights = {id(part) for loop in loops for part in ast.walk(loop)}
    handed = dict(_handed(tree, held.path))
    drawn = [each for each in tree.of(ast.Call) if each not in handed and _draws(each, held.path)]
    for function, name in dict.fromkeys(handed.values()):
        drawn += [each for each in ast.walk(function) if isinstance(each, ast.Call) and _draws(each, name)]
    return bool(drawn) and all(
        id(each) not in of_weights and (_is_noise(each) or drawn_for_samples(each, held.file)) for each in drawn
    )


def _handed(tree: Tree, name: str) -> Iterator[tuple[ast.Call, tuple[ast.FunctionDef, str]]]:
    """Yield the calls that give a variable to a function of the file, with that function and its name for it."""
    functions = {each.name: each for each in tree.module.body if isinstance(each, ast.FunctionDef)}
    for call in tree.of(ast.Call):
        function = functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if function is None:
            continue
        names = [each.arg for each in function.args.args]
        given = [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
        for parameter, value in given:
            if parameter and isinstance(value, ast.Name) and value.id == name:
                yield call, (function, parameter)


def _draws(call: ast.Call, name: str) -> bool:
    by_keyword = any(isinstance(each.value, ast.Name) and each.value.id == name for each in call.keywords)
    return (by_keyword and any(each.arg == "generator" for each in call.keywords)) or _is_own_method(call, name)


def _is_own_method(call: ast.Call, name: str) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=held), attr=method):
            return held == name and method not in STATES
    return False


def _is_noise(call: ast.Call) -> bool:
    shape = " ".join(map(ast.unparse, call.args)) + " " + " ".join(ast.unparse(each.value) for each in call.keywords)
    name = last_name(call.func)
    for_samples = name in LIKE or OF_SAMPLES.search(shape) is not None
    return (name in NOISE or name in LIKE) and for_samples and not OF_WEIGHTS.search(shape)
