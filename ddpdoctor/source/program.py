"""A Python file as a program: what it imports, whether it is a training of several processes, and on which hosts."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from ddpdoctor.source.across.project import without_comments
from ddpdoctor.source.arguments import keyword
from ddpdoctor.source.libraries import ACCELERATES, TRAINER
from ddpdoctor.source.meaning import Meaning
from ddpdoctor.source.reach.guards import guards
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.sites import call_sites
from ddpdoctor.source.vocabulary import DATA_PARALLEL, DDP, FRAMEWORKS, GROUPS, INIT, OF_RANKS, PARTS


@dataclass
class Program(Meaning):
    """A parsed file, and what kind of program it is: what it imports, and whether it runs in several processes."""

    @cached_property
    def _paths(self) -> frozenset[str]:
        """The full names of all that the file imports from outside."""
        return frozenset(path for path, _ in self._taken)

    @cached_property
    def _taken(self) -> list[tuple[str, str]]:
        """The full name of each thing that the file imports from outside, and the name that it has here."""
        bound = [(name, each) for scope in self.tree.bindings.values() for name, many in scope.items() for each in many]
        return [(each.path, name) for name, each in bound if each.path and not each.path.startswith(".")]

    @cached_property
    def imported(self) -> frozenset[str]:
        """The top-level names of all that the file imports."""
        return frozenset(path.partition(".")[0] for path in self._paths)

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """The frameworks that it imports, but for models of transformers, and samplers, losses and helpers of others.

        What is imported and never read does nothing.
        """
        used = [path for path, name in self._taken if name in self.tree.read or not _is_idle(self.text, name)]
        found = frozenset(path.partition(".")[0] for path in used if not path.startswith(PARTS)) & FRAMEWORKS
        by_hand = bool(self._calls.get(DDP)) and re.search(r"Trainer\b", self.text) is None
        idle = set() if TRAINER.search(self.text) and not by_hand else {"transformers"}
        return found - idle - (set() if ACCELERATES.search(self.text) else {"accelerate"})

    @cached_property
    def joins(self) -> bool:
        """Whether it makes a process group, or wraps a model in DDP: a training of several processes."""
        inits = self._calls.get(INIT, [])
        sizes = [self.constant(size) for each in inits if (size := keyword(each, "world_size")) is not None]
        ones = [size for size in sizes if size is not None and size.value == 1]
        wraps = [] if inits else [each for each in self._calls.get(DDP, ()) if not self._is_dead(each)]
        return len(ones) < len(inits) or bool(wraps)

    def _is_dead(self, node: ast.AST) -> bool:
        """Whether a node stands in a function of a program that nobody calls, here or in another file."""
        function = self.function(node)
        if not isinstance(function, ast.FunctionDef) or "__main__" not in self.text:
            return False
        abroad = self.tree.callers(function) if self.tree.callers is not None else []
        return call_sites(self.tree, function) == [] and not abroad and self.tree.class_of(function) is None

    @cached_property
    def runs_in_ranks(self) -> bool:
        """Whether the file makes a group of processes, by torch or by a framework that launchers start in each rank."""
        return self.joins or any(self._calls.get(path) for path in GROUPS)

    def has_module(self, name: str) -> bool:
        """Whether the top of the file imports a module under its own name: ``import os``."""
        bound = self.tree.bindings.get(self.tree.module, {}).get(name, [])
        return bool(bound) and all(isinstance(each.node, ast.Import) and each.path == name for each in bound)

    @cached_property
    def has_one_rank_a_host(self) -> bool:
        """Whether the file gives every process the same local rank: they are on hosts of their own, with own disks."""
        stores = [target for each in self.nodes(ast.Assign) if _is_number(each.value) for target in each.targets]
        return (
            any(
                isinstance(each, ast.Subscript)
                and self.resolve(each.value) == "os.environ"
                and isinstance(each.slice, ast.Constant)
                and each.slice.value == "LOCAL_RANK"
                for each in stores
            )
            or self._meets_at_other_host
            or self._is_told_where_to_meet
        )

    @cached_property
    def _meets_at_other_host(self) -> bool:
        """Whether the file names a host at which its processes meet, starts none of them, and reads no local rank.

        Each of them was started by hand, on a host or in a container of its own.
        """
        if re.search(r"LOCAL_RANK|LOCALID|spawn|Process\(|start_processes", self.text):
            return False
        addresses = {address for each in self.nodes(ast.Constant) if isinstance(each.value, str)
                     for address in ADDRESS.findall(each.value)}  # fmt: skip
        return bool(self._calls.get(INIT)) and any(not each.startswith(("127.", "0.", "224.")) for each in addresses)

    @cached_property
    def _is_told_where_to_meet(self) -> bool:
        """Whether an address and a rank are typed for each process: by hand, as on hosts of their own.

        Two processes of one host can be started so as well: it is not known then.
        """
        if re.search(r"environ|getenv|LOCAL|spawn|Process\(|start_processes|127\.|localhost|file://", self.text):
            return False
        inits = self._calls.get(INIT, [])
        given = [(keyword(each, "init_method"), keyword(each, "rank")) for each in inits]
        return bool(inits) and all(
            rank is not None and method is not None and not isinstance(self.value(method), ast.Constant)
            for method, rank in given
        )

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    @property
    def is_test(self) -> bool:
        """Whether it is a test: what stands there is wrong on purpose, or part of a whole that is not seen."""
        *_, folder, name = ["", *self.path.replace("\\", "/").split("/")]
        return folder in {"test", "tests", "testing"} or name.startswith("test_") or name == "conftest.py"

    def joins_elsewhere(self, node: ast.AST) -> bool:
        """Whether a function of another file, which makes the process group, is called before a node.

        One that makes it on some condition of the caller's counts where the file itself is about several ranks. A file
        that wraps its models in DataParallel alone is run as one process, which such a helper lets pass.
        """
        if self._calls.get(DATA_PARALLEL) and not self._calls.get(DDP):
            return False
        main = [
            each for each in self.nodes(ast.Call) if each.lineno < getattr(node, "lineno", 0) or self.function(node)
        ]
        for call in main:
            found = self.defined(call.func)
            if (
                found is None
                or found[0] is self.tree
                or any(each.is_rankish(self.tree) for each in guards(self.tree, call))
            ):
                continue
            inits = [each for each in found[0].of(ast.Call) if resolve(found[0], each.func) == INIT]
            own = [each for each in inits if found[0].function(each) is found[1]]
            tests = [ast.unparse(guard.test) for each in own for guard in guards(found[0], each)]
            if own and (all("environ" in each for each in tests) or OF_RANKS.search(self.text)):
                return True
        return False


ADDRESS = re.compile(r"^(?:tcp://)?((?:\d{1,3}\.){3}\d{1,3})(?::|$)")


def _is_idle(text: str, name: str) -> bool:
    """Whether a name that is imported occurs nowhere else, not even in a text or an annotation."""
    return name != "*" and len(re.findall(rf"\b{re.escape(name)}\b", without_comments(text))) == 1


def _is_number(node: ast.expr) -> bool:
    """Whether it is a number, or ``str`` of one, that is written out."""
    return isinstance(node, ast.Constant) and str(node.value).isdigit()
