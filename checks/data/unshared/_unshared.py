"""Loaders of a source whose data nobody shares out, and samplers that no loader is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import given, is_open

from ..._scripts.source import LOADER, SAMPLER

if TYPE_CHECKING:
    from ddpdoctor.check import Script

SHARED_OUT = re.compile(
    r"Sampler|split_dataset_by_node|\.shard\(|IterableDataset|webdataset|\bwds\.|num_replicas|Subset\(|random_split|partition"
    r"|seed[^\n]*rank|rank[^\n]*seed|even_divisible|DistributedProxy|read_shard"
)
"""What says that somebody shares out the data, or lets the ranks draw in orders of their own."""
OWN_DATA = re.compile(r"rank|world|shard|rand|synth|dummy|fake|replica|worker", re.IGNORECASE)
"""What says that a data set is another one on each rank."""


SEEDED = re.compile(r"\btorch\.manual_seed\(\s*(?:[\w.]*seed|\d+)\s*\)")


def is_same_on_all_ranks(script: Script, node: ast.expr) -> bool:
    """Whether an expression is a data set of torchvision, or of the project, that is the same on all ranks."""
    made = script.value(node)
    if not isinstance(made, ast.Call) or OWN_DATA.search(ast.unparse(made)):
        return False
    path = script.resolve(made.func) or ""
    if re.match(r"torchvision\.datasets\.(?:\w+\.)?[A-Z]", path):
        return not path.endswith("FakeData")
    own = script.names_class(made.func)
    if own is None and script.tree.abroad is not None and "." in path:
        found = script.tree.abroad(path)
        own = found[1] if found is not None and isinstance(found[1], ast.ClassDef) else None
    return own is not None and "__getitem__" in ast.unparse(own) and not OWN_DATA.search(ast.unparse(own))


def told_its_epoch(script: Script, node: ast.Name) -> bool:
    """Whether a sampler is read only to be told its epoch."""
    asked = script.tree.parents[node]
    return isinstance(asked, ast.Attribute) and asked.attr == "set_epoch"


def lacks_sampler(script: Script, loader: ast.Call, sampler: ast.Call) -> bool:
    """Whether a loader goes through the data set of a sampler, and has no sampler."""
    data, own = given(loader, 0, "dataset"), given(sampler, 0, "dataset")
    has_one = given(loader, 3, "sampler") or given(loader, 4, "batch_sampler") or is_open(loader)
    return data is not None and own is not None and script.code(data) == script.code(own) and not has_one


def classes_given(script: Script) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the loaders that are given the class DistributedSampler in place of one of its objects, and the class."""
    for loader in script.calls(LOADER):
        sampler = given(loader, 3, "sampler")
        if isinstance(sampler, (ast.Name, ast.Attribute)) and script.resolve(sampler) == SAMPLER:
            yield loader, sampler


def classes_forgotten(script: Script) -> Iterator[tuple[ast.Assign, str, ast.Call]]:
    """Yield where a variable is given the class DistributedSampler and never read, and the loader without a sampler."""
    for node in script.nodes(ast.Assign):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=chosen) if script.function(node) is not None:
                pass
            case _:
                continue
        kinds = [chosen.body, chosen.orelse] if isinstance(chosen, ast.IfExp) else [chosen]
        names = [each for each in kinds if isinstance(each, (ast.Name, ast.Attribute))]
        if SAMPLER not in [script.resolve(each) for each in names] or "locals()" in script.text:
            continue
        reads = script.tree.read.get(name, ())
        if any(each.node is node for read in reads for each in script.tree.lookup(name, read)):
            continue
        loaders = [each for each in script.calls(LOADER) if script.function(each) is script.function(node)]
        bare = [each for each in loaders if not (given(each, 3, "sampler") or given(each, 4, "batch_sampler"))]
        if bare and len(bare) == len(loaders) and not is_open(bare[0]):
            yield node, name, bare[0]
