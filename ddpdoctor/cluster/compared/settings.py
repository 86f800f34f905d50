"""What the training is told of itself: the options of its script, and the files of settings; hosts compare it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.redact import can_leave
from ddpdoctor.source.launching.yaml.tree import documents

if TYPE_CHECKING:
    from ddpdoctor.source.launching.yaml.node import Node

READ = {".yaml", ".yml", ".json"}
IN_SOURCE = re.compile(r"""["']([\w./-]{1,200}\.(?:ya?ml))["']""")
"""A file of settings that a script names itself; one of JSON can as well be what it writes."""
PLAIN = re.compile(r"[\w+-]{1,64}|[+-]?[\d_]*\.?\d+(?:[eE][+-]?\d+)?")
"""A number or a word: neither a path, nor an address, nor the name of a file."""
OWN = re.compile(
    r"(?:^|[._-])(?:\w*(?:rank|dir|path|root|file|folder|host|hostname|gpu|gpus|device|devices|port|addr|address|ip|id))"
    r"(?:$|[._-])|cuda|worker|thread|cache|log|(?:^|[._])out|(?:run|exp|experiment)_?name|stamp|tmp|temp|node|machine|interface|ifname|user|pin_memory|prefetch"
)
"""Names of what each host has of its own."""
OPTION = "option "
LARGEST = 1 << 18  # bytes of a file
FILES, MOST, DEEPEST = 16, 1000, 16


def settings(named: Sequence[str]) -> dict[str, str]:
    """Return what the options behind the script, and the files of settings, say, by name; of plain values alone."""
    found: dict[str, str] = {}
    pairs = (pair for path in _files(named) for pair in _of_file(path))
    for name, value in (*_options(named), *islice(pairs, MOST)):
        short = name.rpartition(": ")[2].removeprefix(OPTION).lstrip("-").lower()
        if PLAIN.fullmatch(value) and not OWN.search(short.replace("-", "_")) and can_leave(short, value):
            found[name] = value
    return found


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    script = next((at for at, word in enumerate(command) if word.endswith(".py")), len(command))
    words = command[script + 1 :]
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            continue
        after = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else "given"
        yield OPTION + name, value if equals else after


def _files(named: Sequence[str]) -> list[Path]:
    """Return the files that a command names, and those that the scripts do, from here or from beside them."""
    found = [Path(word.rpartition("=")[2]) for word in named]
    for script in (Path(name) for name in named if name.endswith(".py")):
        try:
            text = script.read_text(encoding="utf-8", errors="replace")[:LARGEST]
        except OSError:
            continue
        for name in IN_SOURCE.findall(text):
            found += [Path(name) if Path(name).is_file() else script.parent / name]
    return [each for each in dict.fromkeys(found) if each.suffix in READ and each.is_file()][:FILES]


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else ""
    except (OSError, ValueError):
        return
    for node in documents(text):
        for name, value in _of_node(node):
            yield f"{path.name}: {name}", value


def _of_node(node: Node, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > DEEPEST or node.is_open:
        return
    for number, each in enumerate(node.items):
        yield from _of_node(each, f"{name}[{number}]", depth + 1)
    for key, each in node.entries:
        yield from _of_node(each, f"{name}.{key}" if name else key, depth + 1)
    if not node.items and not node.entries:
        yield name, node.text
