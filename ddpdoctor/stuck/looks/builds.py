"""A rank that waits for the lock under which torch builds an extension: whether anybody builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpdoctor.host.process.build_lock import left_since
from ddpdoctor.host.process.waits.wait import Awaited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddpdoctor.host.stack import Frame

BUILDS, FOLDER = ("torch/utils/cpp_extension.py", "_jit_compile"), "build_directory"
WAITS = "torch/utils/file_baton.py"


def built_in(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return from a dump of py-spy the folder of a build whose lock is waited for: one variable of torch's own."""
    if not any(str(each["filename"]).endswith(WAITS) for each in frames):
        return ""
    for each in frames:
        if str(each["filename"]).endswith(BUILDS[0]) and each["name"] == BUILDS[1]:
            texts = {str(local.get("name")): str(local.get("repr")) for local in each.get("locals") or ()}
            return texts.get(FOLDER, "").strip("\"'")
    return ""


def waits_for_build(frames: Sequence[Frame]) -> bool:
    """Whether a rank asks for such a lock, ten times a second: the one that builds has it."""
    return any(each.file.endswith(WAITS) for each in frames)


def of_left_lock(build: str) -> Awaited | None:
    """Return which lock nobody will take away; None where somebody can hold it, or its folder is not known."""
    path = f"{build}/lock"
    if not build or (age := left_since(path)) is None:
        return None
    return Awaited(
        f"the lock of a build, {path}, which no process holds: one that has ended left it {age:.0f} s ago",
        "remove it: torch then builds the extension",
        f"rm {path}",
    )
