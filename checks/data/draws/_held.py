"""Random generators that objects of the script hold, and what they are drawn from for, as the source says it."""

from __future__ import annotations

import ast
import re

from ddpdoctor.check import HeldGenerator, Site, last_name, tree_of

from .._streams import NOISE
from ._in_forward import LIKE, OF_SAMPLES
from ._whole_numbers import drawn_for_samples

STATES = {"manual_seed", "seed", "get_state", "getstate", "set_state", "setstate", "initial_seed"}
WEIGHTS = re.compile(r"prob|softmax|logit|policy|\bpi\b", re.IGNORECASE)


def draws_what_ranks_try(held: HeldGenerator) -> bool:
    """Whether all that a class draws from a generator of its own is what each rank is to try for itself.

    That are continuous numbers, actions drawn by their probabilities, and whatever an environment draws; of whole
    numbers and orders, ranks can take their parts.
    """
    cls = _class(held)
    if cls is None:
        return False
    methods = {each.name for each in cls.body if isinstance(each, ast.FunctionDef)}
    drawn = list(_draws(cls, f"self.{held.path.rpartition('.')[2]}"))
    if not drawn:
        return False
    return {"reset", "step"} <= methods or all(_tries(each) or drawn_for_samples(each, held.file) for each in drawn)


def draws_for_samples(held: HeldGenerator) -> bool:
    """Whether all that a class draws from a generator of its own is noise, or a number of each sample of a batch.

    The samples are given by something else; of orders, and of whole numbers by count, ranks can take their parts.
    """
    cls = _class(held)
    drawn = list(_draws(cls, f"self.{held.path.rpartition('.')[2]}")) if cls is not None else []
    return bool(drawn) and all(_is_for_samples(each) for each in drawn)


def _is_for_samples(call: ast.Call) -> bool:
    name, said = last_name(call.func), ast.unparse(call)
    return name in LIKE or (name in NOISE | {"randint", "integers"} and OF_SAMPLES.search(said) is not None)


def seeded_at(held: HeldGenerator, site: Site) -> Site | None:
    """Return the line that makes the object with a seed, or the generator itself."""
    owner, _, name = held.path.rpartition(".")
    made = _assigned(held.file, owner.rpartition(".")[2], held.kind) or _assigned(held.file, name, "")
    return site._replace(file=held.file, line=made) if made else None


def _class(held: HeldGenerator) -> ast.ClassDef | None:
    found = [each for each in tree_of(held.file).of(ast.ClassDef) if each.name == held.kind] if held.file else []
    return found[0] if len(found) == 1 else None


def _draws(cls: ast.ClassDef, name: str) -> list[ast.Call]:
    calls = [each for each in ast.walk(cls) if isinstance(each, ast.Call)]
    own = [each for each in calls if isinstance(each.func, ast.Attribute) and ast.unparse(each.func.value) == name]
    given = [each for each in calls if any(ast.unparse(word.value) == name for word in each.keywords)]
    return [each for each in (*own, *given) if last_name(each.func) not in STATES]


def _tries(call: ast.Call) -> bool:
    name = last_name(call.func)
    by_weight = name in {"multinomial", "choice", "categorical"} and bool(WEIGHTS.search(ast.unparse(call)))
    return name in NOISE or by_weight


def _assigned(file: str, name: str, kind: str) -> int:
    """Return the line that gives an attribute, or a name, an object of a class that is made with arguments; else 0."""
    for each in tree_of(file).of(ast.Assign):
        targets = [part for to in each.targets for part in (to.elts if isinstance(to, ast.Tuple) else [to])]
        named = any(last_name(to) == name for to in targets)
        calls = [part for part in ast.walk(each.value) if isinstance(part, ast.Call)]
        made = any((not kind or last_name(part.func) == kind) and part.args for part in calls)
        if named and made:
            return each.lineno
    return 0
