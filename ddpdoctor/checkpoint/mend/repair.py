"""Repairs the keys of one checkpoint: plans, changes, and looks again at what came out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union

from ddpdoctor.check import BadTarget
from ddpdoctor.checkpoint.contents import Format, StateDict
from ddpdoctor.checkpoint.distributed import Metadata
from ddpdoctor.checkpoint.mend import guard, journal
from ddpdoctor.checkpoint.mend.edits import changes, files_of
from ddpdoctor.checkpoint.mend.files import copied, one_line, unchanged, write, write_folder
from ddpdoctor.checkpoint.mend.fit import NoMatch, fitted, in_the_way
from ddpdoctor.checkpoint.mend.plan import Renamed, described, names_of, renamed
from ddpdoctor.checkpoint.mend.rules import Rules, new_names, rules
from ddpdoctor.checkpoint.mend.splice import Growth, Splice
from ddpdoctor.checkpoint.mend.verify import reach, verify
from ddpdoctor.checkpoint.reader import INDEX, Opened, Shards, opened, paused_collector, stamp
from ddpdoctor.checkpoint.safetensors import Header
from ddpdoctor.checkpoint.torchfile import Pickled
from ddpdoctor.checkpoint.values import UnreadableError

Where = Union[str, "os.PathLike[str]"]
CLOSED = {
    Format.TORCHSCRIPT: "a TorchScript archive has its names in compiled code: load it, and save the state dict of it",
    Format.EXPORT: "a torch.export archive has its names in a compiled graph: export the model again",
    Format.PICKLE: "a plain pickle, not written by torch.save, has no state dict that torch.load would find",
}


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did, or with ``dry_run`` would do, to the checkpoint ``path``.

    ``output`` is where it was written, empty when nothing was; ``recovered`` says that a run before, which was killed,
    was taken back first.
    """

    path: str
    output: str
    state_dicts: tuple[Renamed, ...]
    recovered: bool = False

    @property
    def changed(self) -> int:
        """Give the number of keys that got another name."""
        return sum(len(each.renamed) for each in self.state_dicts)


def repair(  # noqa: PLR0913 - one for each thing that a user can want
    path: Where,
    output: Where | None = None,
    *,
    in_place: bool = False,
    to: str = "bare",
    strip: Iterable[str] = (),
    add: str = "",
    rename: Iterable[tuple[str, str]] = (),
    regex: Iterable[tuple[str, str]] = (),
    like: Where | None = None,
    model: Any = None,
    dry_run: bool = False,
    force: bool = False,
) -> Repair:
    """Give the keys of a checkpoint other names; tensors are neither read nor copied through memory.

    Args:
        path: a file of torch.save or safetensors, a directory of torch.distributed.checkpoint, or one with an index of
            shards.
        output: where to write the changed copy.
        in_place: change the checkpoint itself; ``undo`` takes it back.
        to: what the keys shall be like, when nothing else says it: ``bare``, or the wrappers from the outermost to the
            innermost, as in ``ddp,compile``.
        strip: prefixes to take off the front of each key that has them.
        add: a prefix to put before each key.
        rename: pairs of old and new, each a key or the beginning of keys up to a dot.
        regex: pairs of a regular expression and its replacement, as for ``re.sub``.
        like: another checkpoint, whose keys are wanted.
        model: a ``torch.nn.Module``, or its parameters as ``(key, shape)``, whose keys are wanted.
        dry_run: only tell.
        force: replace ``output`` when it is there.

    Raises:
        BadTarget: the checkpoint cannot be changed as asked; nothing was changed.
        NoMatch: no renaming makes the keys those of ``like`` or ``model``.
    """
    how = rules(to, strip, add, rename, regex)
    if not dry_run and (output is None) is not in_place:
        raise BadTarget(f"{os.fspath(path)}: name either an output or in_place")
    with one_line(os.fspath(path)), paused_collector():
        recovered = in_place and not dry_run and _recovered(path)
        source = _usable(opened(path))
        reach(source)
        plan = _planned(source, how, _wanted(like, model))
        if dry_run:
            _changes(source, plan, in_place=in_place)  # what cannot be done is not foretold
            return Repair(source.file.path, "", plan)
        target = (
            _in_place(source, plan) if in_place else _copy(source, plan, Path(os.fspath(output or "")), force=force)
        )
        return Repair(source.file.path, target, plan, recovered)


def undo(path: Where) -> None:
    """Take back the last repair in place of a checkpoint.

    Raises:
        BadTarget: there was none, or the checkpoint was changed since.
    """
    with one_line(os.fspath(path)):
        main = _main(Path(path))
        if not main.exists():
            raise BadTarget(f"{main}: there is no such file")
        guard.refuse_in_place(main)
        with guard.alone(main):
            journal.undo(main)


def _main(path: Path) -> Path:
    """Name the file beside which the journal of a checkpoint is."""
    if not path.is_dir():
        return path
    return next(iter(sorted(path.glob(f"*{INDEX}"))), path / ".metadata")


def _recovered(path: Where) -> bool:
    main = _main(Path(path))
    if not main.is_file() or not journal.journal_of(main).exists():
        return False
    guard.refuse_in_place(main)
    with guard.alone(main):
        return journal.recover(main)


def _usable(source: Opened) -> Opened:
    """Give the checkpoint, if its names can be changed.

    Raises:
        BadTarget: it is damaged, is no checkpoint, or has no state dict.
    """
    file = source.file
    if file.damage:
        raise BadTarget(f"{file.path} is broken: {file.damage}")
    if file.opaque:
        raise BadTarget(f"{file.path} cannot be changed: {file.opaque}")
    if not file.format.loads or file.format in CLOSED:
        label = CLOSED.get(file.format) or f"{file.format.value}{': ' + file.label if file.label else ''}"
        raise BadTarget(f"{file.path} cannot be repaired: {label}")
    if not file.state_dicts:
        module = next(iter(file.modules), None)
        what = (
            f"a whole module ({module.kind}) was pickled with its class: load it where the class is, and save "
            "its state_dict()"
            if module
            else f"it holds {file.root or 'nothing'}, and no state dict"
        )
        raise BadTarget(f"{file.path} cannot be repaired: {what}")
    return source


def _wanted(like: Where | None, model: Any) -> tuple[StateDict, ...]:
    if like is not None and model is not None:
        raise BadTarget("name either like or model")
    if like is not None:
        return _usable(opened(like)).file.state_dicts
    if model is None:
        return ()
    if isinstance(model, str):
        raise BadTarget(f"model {model!r}: give the module itself; FILE.py:NAME is for the command line")
    named = model.state_dict().items() if hasattr(model, "state_dict") else model
    return (described(named),)


def _planned(source: Opened, how: Rules, wanted: tuple[StateDict, ...]) -> tuple[Renamed, ...]:
    state_dicts = source.file.state_dicts
    try:
        if wanted:
            return _like(state_dicts, wanted)
        plan = tuple(renamed(each, names_of(each), *new_names(each, names_of(each), how)) for each in state_dicts)
        return tuple(_with_optimizer(each, source) for each in plan)
    except BadTarget as exc:
        raise type(exc)(f"{source.file.path}: {exc}") from None


def _with_optimizer(each: Renamed, source: Opened) -> Renamed:
    """Note the optimizer that a distributed checkpoint keeps by the old names, which stand in the ranks' files, too."""
    if isinstance(source.inside, Metadata) and each.renamed:
        old = {name for name, _ in each.renamed}
        ways = (way for way in source.inside.ways.values() if way[:-1] != each.location)
        if any(part in old for way in ways for part in way):
            note = "the optimizer's state keeps the old names, which stand in the ranks' own files, too"
            return replace(each, note="; ".join(filter(None, (each.note, note))))
    return each


def _like(state_dicts: Sequence[StateDict], wanted: Sequence[StateDict]) -> tuple[Renamed, ...]:
    """Give each state dict the names of the one that it fits: that of the same place, if it does."""
    plan, reasons = [], []
    for each in state_dicts:
        others = sorted(wanted, key=lambda other: other.location != each.location)
        found = [(other, fitted(each, other)) for other in others]
        new = next((fit for _, fit in found if isinstance(fit, list)), None)
        if new is None:
            reasons += [in_the_way(each, other, fit) for other, fit in found if not isinstance(fit, list)][:1]
        names = names_of(each)
        note = "" if new else "left alone: its tensors are not those that are wanted"
        plan.append(renamed(each, names, new or list(names), note))
    if len(reasons) == len(plan):
        raise NoMatch(f"no renaming makes the keys equal: {reasons[0]}")
    return tuple(plan)


def _changes(source: Opened, plan: tuple[Renamed, ...], *, in_place: bool) -> tuple[Splice | Growth, ...]:
    try:
        return changes(source, plan, in_place=in_place)
    except UnreadableError as exc:
        raise BadTarget(f"{source.file.path} cannot be repaired: {exc}") from None


def _in_place(source: Opened, plan: tuple[Renamed, ...]) -> str:
    guard.refuse_link(Path(source.file.path))
    steps = _changes(source, plan, in_place=True)
    for step in steps:
        guard.refuse_in_place(Path(step.path))
    if not steps:
        return source.file.path
    with guard.alone(source.main):
        _refuse_changed(source)
        journal.apply(source.main, steps)
        try:
            verify(source.file.path, source.file, plan)
        except BaseException:
            journal.undo(source.main)
            raise
    return source.file.path


def _refuse_changed(source: Opened) -> None:
    parts = source.inside.parts if isinstance(source.inside, Shards) else ()
    for each in (source, *parts):
        if stamp(each.main) != each.stamp:
            raise BadTarget(f"{each.main} was changed while it was looked at")


def _copy(source: Opened, plan: tuple[Renamed, ...], output: Path, *, force: bool) -> str:
    folder = not isinstance(source.inside, (Pickled, Header))
    _refuse_output(source, output, folder=folder, force=force)
    steps = {Path(step.path): step for step in _changes(source, plan, in_place=False) if isinstance(step, Splice)}
    files = files_of(source)
    for path in files:
        guard.refuse_written(path)
    fills = {path: copied(steps.get(path) or unchanged(path)) for path in files}

    def check(new: str) -> None:
        _refuse_changed(source)
        verify(new, source.file, plan)

    with one_line(str(output)):
        if folder:
            write_folder(output, fills, check)
        else:
            write(output, fills[source.main], str(source.main), check)
    return str(output)


def _refuse_output(source: Opened, output: Path, *, folder: bool, force: bool) -> None:
    if output.exists() and output.resolve() == Path(source.file.path).resolve():
        raise BadTarget(f"{output} is the checkpoint itself: use in_place (--in-place)")
    if output.is_symlink() or output.is_dir() or (output.exists() and folder):
        raise BadTarget(f"{output} is there already")
    if output.exists() and not force:
        raise BadTarget(f"{output} is there already (--force replaces it)")
    guard.refuse_unwritable_folder(output.absolute().parent)
