"""Settings of a project: the nearest ``ddpdoctor.toml``, or ``pyproject.toml`` with a table ``[tool.ddpdoctor]``."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpdoctor.facets import BadTarget

OWN, SHARED = "ddpdoctor.toml", "pyproject.toml"
TABLE = "[tool.ddpdoctor]"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file in ``folder`` says; ``source`` is the file, and the table in it, as a refusal names it."""

    folder: Path = Path()
    source: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def find_settings(folder: Path) -> Settings:
    """Return the settings of the nearest folder, from this one upwards, that has some.

    In a folder where anybody can leave a file, such as /tmp, nothing is looked for: settings name code that is run.

    Raises:
        BadTarget: a file cannot be read.
    """
    for each in (folder, *folder.parents):
        if not _is_anybodys(each):
            for name in (OWN, SHARED):
                if (settings := _read(each / name)) is not None:
                    return settings
    return Settings()


def _is_anybodys(folder: Path) -> bool:
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def _read(path: Path) -> Settings | None:
    """Return what a file says; None where it is not there, or says nothing about ddpdoctor."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, ValueError) as exc:
        raise BadTarget(f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}") from None
    if path.name == OWN:
        return Settings(path.parent, str(path), _parsed(path, text))
    if "ddpdoctor" not in text or (sys.version_info < (3, 11) and TABLE not in text):
        return None
    table = _parsed(path, text).get("tool", {}).get("ddpdoctor")
    if table is None:
        return None
    if not isinstance(table, dict):
        raise BadTarget(f"{path}: tool.ddpdoctor is no table")
    return Settings(path.parent, f"{path} {TABLE}", table)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    except ImportError:
        raise BadTarget(f"{path} holds settings; reading them takes Python 3.11, or: pip install tomli") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise BadTarget(f"{path} is not valid TOML: {exc}") from None
