"""What was found before, by the contents of the files: a JSON file for each project in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_PROJECTS = 32
ROOMS = ("lint", "source")
"""The folders of this package whose files decide what is found, besides those of the checks."""


def digest(*parts: bytes) -> str:
    """Return a short digest of several byte strings, each apart from the next."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()


def stamp(codes: Iterable[str], folders: Iterable[str]) -> str:
    """Return what decides about findings besides the files: these checks, the code in their folders, and Python."""
    own = Path(__file__).parent.parent
    files = [file for folder in (*(own / room for room in ROOMS), *map(Path, folders)) for file in folder.rglob("*.py")]
    seen = [(str(each), each.stat().st_mtime_ns, each.stat().st_size) for each in sorted({*files})]
    return digest(repr((sys.version_info, sorted(codes), seen)).encode())


@dataclass
class Cache:
    """Plain values by keys. Only what was asked for or put is kept, so that it does not grow."""

    path: Path
    stamp: str
    known: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """Return what was put under a key; None where nothing was."""
        if key in self.known:
            self.kept[key] = self.known[key]
        return self.known.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a plain value."""
        self.kept[key] = value

    def save(self) -> None:
        """Write the file whole, or leave what is there; forget projects that were not looked at for long."""
        if self.kept == self.known:
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(f".{os.getpid()}.tmp")
            text = json.dumps({"stamp": self.stamp, "known": self.kept}, separators=(",", ":"))
            new.write_text(text, encoding="utf-8")
            new.replace(self.path)
            others = sorted(self.path.parent.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
            for old in others[MOST_PROJECTS:]:
                old.unlink()


def open_cache(base: Path, codes: Iterable[str], folders: Iterable[str]) -> Cache:
    """Return the cache of what was looked at from a folder; an empty one where there is none, or of another version."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(home, "ddpdoctor", "lint", f"{digest(str(base.resolve()).encode())}.json")
    made = Cache(path, stamp(codes, folders))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        held = json.loads(path.read_text(encoding="utf-8"))
        if held.get("stamp") == made.stamp and isinstance(held.get("known"), dict):
            made.known = held["known"]
    return made
