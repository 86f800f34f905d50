"""Tables of numbers that ranks have given to words, compared."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from ddpdoctor.check import Numbered, Site, Training, last_name, tree_of

from ...._scripts.own_files import own_files

SET = re.compile(r"\b(?:list|tuple)\((set\((?:[^()]|\([^()]*\))*\))\)|(?<!sorted\()\b(set\((?:[^()]|\([^()]*\))*\))")
FEWEST = 3  # words that two ranks have in common
APART = 2  # of them, that have other numbers


def renumbered(first: Numbered, other: Numbered) -> tuple[int, int]:
    """Return how many words have another number in the other table, and of how many; zeros where that is chance."""
    numbers = dict(first.sample)
    common = {word: number for word, number in other.sample if word in numbers}
    apart = sum(numbers[word] != number for word, number in common.items())
    return (0, 0) if len(common) < max(FEWEST, len(other.sample) / 2) or apart < APART else (apart, len(common))


def words_differ(training: Training) -> bool:
    """Whether the ranks number words differently: what looks the same in numbers is not the same then."""
    for event in training.of(Numbered, rank=0):
        first, *others = training.complete(Numbered, name=event.name, site=event.site).values() or [event]
        if event.size != training.world_size and any(renumbered(first, other)[0] for other in others):
            return True
    return False


class Made(NamedTuple):
    """The line that makes a table, or the order that it is made from; ``sorted`` mends it, where it is of a set."""

    file: str
    line: int
    code: str
    sorted: str


def made_at(name: str, site: Site | None) -> Made | None:
    """Return the one line that makes a table of this name, in the file of a site and those that it imports."""
    if site is None:
        return None
    assigned = [
        (file, each)
        for file in own_files(site.file)
        for each in tree_of(file).of(ast.Assign)
        if any(last_name(target) == name.rpartition(".")[2] for target in each.targets)
    ]
    if len(assigned) != 1:
        return None
    ((file, made),) = assigned
    tree, names = tree_of(file), {each.id for each in ast.walk(made.value) if isinstance(each, ast.Name)}
    before = [
        each
        for each in tree.of(ast.Assign)
        if tree.function(each) is tree.function(made)
        and each.lineno < made.lineno
        and names & {target.id for target in each.targets if isinstance(target, ast.Name)}
    ]
    for each in (made, *reversed(before)):
        code = ast.unparse(each)
        right = SET.sub(lambda found: f"sorted({found[1] or found[2]})", code)
        if right != code:
            return Made(file, each.lineno, code, f"-{code}\n+{right}")
    return Made(file, made.lineno, ast.unparse(made), "")
