"""What the sources of the user's training say of set_epoch; read in a rank that has imported them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.probe.loader_facts import Source
from ddpdoctor.probe.target import MAIN, Target

FRAMEWORKS = ("accelerate", "composer", "ignite", "lightning", "pytorch_lightning", "transformers")


def read_source(target: Target) -> Source:
    """Read the target's file and the modules beside it that it imported."""
    module = sys.modules.get(MAIN) or sys.modules.get(target.module)
    files = _project(Path(str(getattr(module, "__file__", target.module))).resolve())
    texts = {file: file.read_text(errors="replace") for file in files}
    nodes = [(file, node) for file, text in texts.items() for node in _nodes(text)]
    commented = [
        f"{file.name}:{number}: {line.strip()}"
        for file, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if line.lstrip().startswith("#") and "set_epoch" in line
    ]
    samplers = [
        (str(file), node.lineno)
        for file, node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("DistributedSampler")
    ]
    return Source(
        files=tuple(str(file) for file in files),
        calls_set_epoch=any(isinstance(node, ast.Attribute) and node.attr == "set_epoch" for _, node in nodes),
        has_epoch_loop=any(isinstance(node, ast.For) and "epoch" in ast.unparse(node.target) for _, node in nodes),
        commented=next(iter(commented), ""),
        sampler_line=next(iter(samplers), None),
        frameworks=tuple(name for name in FRAMEWORKS if name in sys.modules),
    )


def _project(main: Path) -> list[Path]:
    """Give the training's own files: the target's, and those of loaded modules in its folder or below."""
    loaded = {Path(str(getattr(module, "__file__", None) or "/")) for module in list(sys.modules.values())}
    project = main.parent
    return sorted(
        {main}
        | {
            path
            for path in loaded
            if path.suffix == ".py"
            and path.is_relative_to(project)
            and not {"site-packages", "ddpdoctor"} & set(path.parts[len(project.parts) :])
        }
    )


def _nodes(text: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(text))
    except SyntaxError:
        return
