"""prepare_data() of a LightningDataModule sets attributes, which the other ranks do not have.

## What happens

Lightning calls `prepare_data` on one rank of each host, to download and to convert, and `setup` on all. What
`prepare_data` stores in `self` exists on that one rank only: the others raise AttributeError in `train_dataloader`, or
train on what a default left there.

## How to be sure

The traceback is of a rank that is not the first of its host: "'Data' object has no attribute 'train'". In a source
(`ddpdoctor lint`): the class assigns an attribute in `prepare_data` alone, and reads it in another method.

## How to mend it

    def prepare_data(self):
        download()

    def setup(self, stage=None):
        self.train, self.val = load()

## Versions and sources

Source: Lightning documentation, "LightningDataModule", prepare_data: "DO NOT set state". Seen with Lightning 2.6 and
torch 2.13 CPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Failed, Finding, Fix, Place, Severity, attribute_set_at, lint, watch

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP622", Severity.ERROR)
BASES = ("LightningDataModule", "LightningModule")
LIBRARIES = {"lightning", "pytorch_lightning"}
NO_ATTRIBUTE = re.compile(r"^AttributeError: '(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'", re.MULTILINE)


@watch(Failed)
def while_training(event: Failed) -> Iterator[Finding]:
    """Look for the attribute that an object lacks in prepare_data of its class, in the file that failed."""
    lacks = NO_ATTRIBUTE.search(event.text)
    if lacks is None or event.site is None:
        return
    line = attribute_set_at(event.site.file, lacks["owner"], "prepare_data", lacks["name"])
    if line:
        yield Finding(
            f"self.{lacks['name']} is set in prepare_data, which one rank of a host runs: rank {event.rank} has none",
            (
                Evidence(lacks[0], "", f"rank {event.rank}, {event.site}"),
                Evidence(f"self.{lacks['name']} set in prepare_data", "set in setup(), which all ranks run",
                         f"{event.site.file}:{line}"),
            ),
            _mend(lacks["name"]),
            Place(file=event.site.file, line=line, rank=event.rank),
        )  # fmt: skip


def _mend(name: str) -> Fix:
    return Fix(f"set self.{name} in setup()", diff=f" def setup(self, stage=None):\n+    self.{name} = ...")


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for attributes that prepare_data alone sets, and that another method reads."""
    if not LIBRARIES & script.imported:
        return
    for each in script.nodes(ast.ClassDef):
        if not any((script.resolve(base) or ast.unparse(base)).endswith(BASES) for base in each.bases):
            continue
        prepare = next(
            (node for node in each.body if isinstance(node, ast.FunctionDef) and node.name == "prepare_data"), None
        )
        if prepare is None or len(each.bases) > 1:
            continue
        elsewhere = {node.attr for node in _own(each, prepare, ast.Store)} | _declared(each)
        read = {node.attr for node in _own(each, prepare, ast.Load)}
        called = {
            node.func.attr
            for node in ast.walk(each)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "prepare_data"
        }
        for node in _own_in(prepare, ast.Store):
            if node.attr in read - elsewhere and not called and "prepare_data_per_node" not in script.text:
                yield Finding(
                    f"self.{node.attr} is set in prepare_data, which one rank of each host runs: the others have none",
                    (script.seen(node, f"self.{node.attr} set in setup(), which all ranks run"),),
                    _mend(node.attr),
                    script.place(node),
                )
                break  # fmt: skip


def _own(owner: ast.ClassDef, but: ast.FunctionDef, kind: type[ast.expr_context]) -> Iterator[ast.Attribute]:
    for node in owner.body:
        if node is not but:
            yield from _own_in(node, kind)


def _own_in(root: ast.AST, kind: type[ast.expr_context]) -> Iterator[ast.Attribute]:
    for node in ast.walk(root):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=context) if isinstance(context, kind):
                yield node


def _declared(owner: ast.ClassDef) -> set[str]:
    """Return the names that the class itself gives a value, and its methods."""
    found = {each.name for each in owner.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for each in owner.body:
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
