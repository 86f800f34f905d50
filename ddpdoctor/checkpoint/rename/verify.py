"""Looks again at a checkpoint that was changed: is it what was promised?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpdoctor.checkpoint.formats import archive_reach
from ddpdoctor.checkpoint.formats.torchfile import Pickled
from ddpdoctor.checkpoint.pickles.values import DamagedError
from ddpdoctor.checkpoint.reader import Opened, Shards, opened
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import CheckpointFile, StateDict
    from ddpdoctor.checkpoint.rename.plan import Renamed


def verify(path: str, before: CheckpointFile, plan: tuple[Renamed, ...]) -> None:
    """See that the checkpoint at ``path`` is ``before`` with the new names, and that all its records can be reached.

    Raises:
        BadTarget: it is not.
    """
    after = opened(path, [each.location for each in before.state_dicts], change=False)
    file = after.file
    if file.damage or file.opaque:
        raise BadTarget(f"{path}: what was written is not what was meant: {file.damage or file.opaque}")
    if not _promised(before.state_dicts, plan, file.state_dicts):
        raise BadTarget(f"{path}: what was written is not what was meant: its keys are others")
    reach(after)


def reach(checkpoint: Opened) -> None:
    """See that each record of its archives begins where the directory says, as a reader of tensors needs it.

    Raises:
        BadTarget: one does not.
    """
    inside = checkpoint.inside
    for each in inside.parts if isinstance(inside, Shards) else (checkpoint,):
        if isinstance(each.inside, Pickled) and each.inside.directory:
            try:
                with each.main.open("rb") as file:
                    archive_reach.reach(file, each.inside.directory)
            except DamagedError as exc:
                raise BadTarget(f"{each.main} is broken: {exc}") from None


def _promised(before: Sequence[StateDict], plan: Sequence[Renamed], after: Sequence[StateDict]) -> bool:
    return len(before) == len(after) and all(
        old.location == new.location
        and _names(old, dict(renamed.renamed)) == (*new.keys, *new.others)
        and all(one[1:] == other[1:] for one, other in zip(old.entries, new.entries, strict=False))
        for old, renamed, new in zip(before, plan, after, strict=True)
    )


def _names(state_dict: StateDict, new: dict[str, str]) -> tuple[str, ...]:
    return tuple(new.get(key, key) for key in (*state_dict.keys, *state_dict.others))
