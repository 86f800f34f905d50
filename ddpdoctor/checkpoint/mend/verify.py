"""Looks again at a checkpoint that was changed: is it what was promised?"""

from __future__ import annotations

from ddpdoctor.check import BadTarget
from ddpdoctor.checkpoint import archive
from ddpdoctor.checkpoint.contents import CheckpointFile, StateDict
from ddpdoctor.checkpoint.mend.plan import Renamed
from ddpdoctor.checkpoint.reader import Shards, opened
from ddpdoctor.checkpoint.torchfile import Pickled


def verify(path: str, before: CheckpointFile, plan: tuple[Renamed, ...]) -> None:
    """See that the checkpoint at ``path`` is ``before`` with the new names, and that all its records can be reached.

    Raises:
        BadTarget: it is not.
    """
    after = opened(path)
    file = after.file
    if file.damage or file.opaque:
        raise BadTarget(f"{path}: what was written is not what was meant: {file.damage or file.opaque}")
    expected = [_expected(each, dict(new.renamed)) for each, new in zip(before.state_dicts, plan, strict=True)]
    if [_told(each) for each in file.state_dicts] != expected:
        raise BadTarget(f"{path}: what was written is not what was meant: its keys are others")
    for each in after.inside.parts if isinstance(after.inside, Shards) else (after,):
        if isinstance(each.inside, Pickled) and each.inside.directory:
            with each.main.open("rb") as opened_file:
                archive.reach(opened_file, each.inside.directory)


def _expected(state_dict: StateDict, new: dict[str, str]) -> tuple[object, ...]:
    entries = [entry._replace(key=new[entry.key]) if entry.key in new else entry for entry in state_dict.entries]
    return state_dict.location, entries, [new.get(key, key) for key in state_dict.others]


def _told(state_dict: StateDict) -> tuple[object, ...]:
    return state_dict.location, list(state_dict.entries), list(state_dict.others)
