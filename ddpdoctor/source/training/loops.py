"""What the sources of a training say of its epochs: read off the text, without running it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.source.text.bindings import last_name
from ddpdoctor.source.text.syntax import NO_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# They put a sampler of their own into the loader, or call set_epoch themselves.
FRAMEWORKS = (
    "accelerate",
    "catalyst",
    "colossalai",
    "composer",
    "fastai",
    "ignite",
    "lightning",
    "lightning_fabric",
    "mmcv",
    "mmengine",
    "pytorch_lightning",
    "ray",
)
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)
TRAINER = re.compile(r"^[ \t]*from[ \t]+transformers\b[^\n]*import[^#]*?\b\w*Trainer\b", re.MULTILINE)
FILES = 200  # that are read
BYTES = 500_000  # of one file: a longer one was written by a machine
SKIPPED = {".git", ".venv", "venv", "node_modules", "site-packages", "build", "dist"}
TESTING = re.compile(r"val|test|eval|dev|predict|infer|calib", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SetEpoch:
    """A call of set_epoch, in a function; ``constant`` is its argument where that is a literal."""

    file: str
    line: int
    receiver: str
    constant: str | None
    function: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """What the training's files say.

    ``commented`` is a line with set_epoch that was commented out, with its place. ``epoch_loop``, ``sampler`` and
    ``loader`` are the places of the first loop over epochs and of the constructions of the samplers and loaders in
    the target's own file. ``elsewhere`` is a file beside these, not imported by them, that mentions set_epoch.
    ``reseeds``: a sampler is constructed in a loop, with a seed that is no literal.
    """

    files: tuple[str, ...] = ()
    calls: tuple[SetEpoch, ...] = ()
    mentions_set_epoch: bool = False
    commented: str = ""
    epoch_loop: tuple[str, int] | None = None
    sampler: tuple[str, int] | None = None
    loader: tuple[str, int] | None = None
    frameworks: tuple[str, ...] = ()
    joins: bool = False
    mentions_local_rank: bool = False
    elsewhere: str = ""
    reseeds: bool = False

    @property
    def always_the_same(self) -> tuple[SetEpoch, ...]:
        """The calls for training, if each passes the same literal."""
        calls = tuple(call for call in self.calls if not TESTING.search(f"{call.receiver} {call.function}"))
        constants = {call.constant for call in calls}
        return calls if len(constants) == 1 and None not in constants else ()


def read_training(main: str, others: Iterable[str] = ()) -> Source:
    """Read the target's file, the modules beside it that it imports in whatever function, and ``others``."""
    texts: dict[Path, str] = {}
    trees: dict[Path, ast.Module] = {}
    waiting = [Path(main), *(Path(other) for other in sorted(others))]
    while waiting and len(texts) < FILES:
        path = waiting.pop(0)
        if path in texts or (text := _text(path)) is None:
            continue
        texts[path] = text
        try:
            trees[path] = ast.parse(text)
        except NO_PYTHON:
            continue
        waiting += _imported(trees[path], path.parent)
    first = trees.get(Path(main))
    calls = tuple(call for path, tree in trees.items() for call in _calls(path, tree))
    return Source(
        files=tuple(str(path) for path in texts),
        calls=calls,
        mentions_set_epoch=bool(calls) or any(_mentions(tree) for tree in trees.values()),
        commented=next((line for path, text in texts.items() for line in _commented(path, text)), ""),
        epoch_loop=next((place for path, tree in trees.items() for place in _epoch_loops(path, tree)), None),
        sampler=_constructed(Path(main), first, "DistributedSampler"),
        loader=_constructed(Path(main), first, "DataLoader"),
        frameworks=tuple(dict.fromkeys(name for text in texts.values() for name in _frameworks(text))),
        joins=any(re.search(r"\bJoin\(|\.join\(\)|\.join\([^)]*divide_by", text) for text in texts.values()),
        mentions_local_rank=any(re.search("local_?rank", text, re.IGNORECASE) for text in texts.values()),
        elsewhere=_elsewhere(Path(main), texts),
        reseeds=any(_reseeds(tree) for tree in trees.values()),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= BYTES else None
    except OSError:
        return None


def _imported(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """Yield the files beside this one that it imports."""
    for node in ast.walk(tree):
        names = []
        above = folder
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for _ in range(node.level - 1):
                above = above.parent
            stem = node.module or ""
            names = [stem, *(f"{stem}.{alias.name}".strip(".") for alias in node.names)]
        for name in names:
            bare = above.joinpath(*name.split(".")) if name else above
            yield from (path for path in (bare.with_suffix(".py"), bare / "__init__.py") if path.is_file())


def _calls(path: Path, node: ast.AST, function: str = "") -> Iterator[SetEpoch]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set_epoch":
        given = [*node.args, *(word.value for word in node.keywords)]
        literal = repr(given[0].value) if len(given) == 1 and isinstance(given[0], ast.Constant) else None
        yield SetEpoch(str(path), node.lineno, ast.unparse(node.func.value), literal, function)
    for child in ast.iter_child_nodes(node):
        yield from _calls(path, child, node.name if isinstance(node, ast.FunctionDef) else function)


def _reseeds(tree: ast.Module) -> bool:
    """Whether a sampler is made anew in a loop, each time with another seed."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("Sampler")
        and any(word.arg == "seed" and not isinstance(word.value, ast.Constant) for word in node.keywords)
        for loop in ast.walk(tree)
        if isinstance(loop, (ast.For, ast.While))
        for node in ast.walk(loop)
    )


def _mentions(tree: ast.Module) -> bool:
    """Find set_epoch where it is no call: a method that is passed on, or a name for getattr."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "set_epoch")
        or (isinstance(node, ast.Constant) and node.value == "set_epoch")
        for node in ast.walk(tree)
    )


def _commented(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") and ".set_epoch(" in line:
            yield f"{path.name}:{number}: {line.strip()}"


def _epoch_loops(path: Path, tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and "epoch" in f"{ast.unparse(node.target)} {ast.unparse(node.iter)}".lower():
            yield str(path), node.lineno


def _constructed(path: Path, tree: ast.Module | None, name: str) -> tuple[str, int] | None:
    """Return the place of the only construction of such an object in a file."""
    lines = [
        node.lineno
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.Call) and last_name(node.func) == name
    ]
    return (str(path), lines[0]) if len(lines) == 1 else None


def _frameworks(text: str) -> Iterator[str]:
    yield from (name for name in IMPORT.findall(text) if name in FRAMEWORKS)
    if TRAINER.search(text):
        yield "transformers.Trainer"


def _elsewhere(main: Path, read: dict[Path, str]) -> str:
    """Return the name of a file in the target's folder that was not read and says set_epoch."""
    looked = 0
    for pattern in ("*.py", "*/*.py"):
        for path in sorted(main.parent.glob(pattern)):
            if path in read or SKIPPED & set(path.parts):
                continue
            looked += 1
            if looked > FILES:
                return ""
            if ".set_epoch(" in (_text(path) or ""):
                return str(path)
    return ""
