"""Repairs the keys of one checkpoint: plans, changes, and looks again at what came out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.checkpoint.beside import journal_of
from ddpdoctor.checkpoint.formats import deepspeed
from ddpdoctor.checkpoint.lines import one_line
from ddpdoctor.checkpoint.reader import INDEX, opened, paused_collector
from ddpdoctor.checkpoint.rename import guard, journal, writing
from ddpdoctor.checkpoint.rename.planning import planned
from ddpdoctor.checkpoint.rename.rules import rules
from ddpdoctor.checkpoint.rename.source import Where, usable, wanted_of
from ddpdoctor.checkpoint.rename.verify import reach
from ddpdoctor.facets import BadTarget

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.contents import StateDict
    from ddpdoctor.checkpoint.rename.plan import Renamed
    from ddpdoctor.checkpoint.rename.rules import Rules


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done to one checkpoint, or to several: ``wanted`` are the names that another thing has."""

    how: Rules
    wanted: tuple[StateDict, ...]
    at: tuple[str, ...]
    in_place: bool
    dry_run: bool
    force: bool


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
        """The number of keys that got another name."""
        return sum(len(each.renamed) for each in self.state_dicts)


def repair(  # noqa: PLR0913 - one for each thing that a user can want
    path: Where,
    output: Where | None = None,
    *,
    in_place: bool = False,
    at: Iterable[str] = (),
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
    """Rename the keys of a checkpoint; tensors are neither read nor copied through memory.

    Args:
        path: a file of torch.save or safetensors, a directory of torch.distributed.checkpoint, or one with an index of
            shards.
        output: where to write the changed copy.
        in_place: change the checkpoint itself; ``undo`` takes it back.
        at: the places of the state dicts that are meant, as in ``netG``, ``net.g``, ``["a.b"]["c"]``, ``.`` for the
            root; by default those that have a prefix to be taken off, else the only one that there is.
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
    order = ordered(
        in_place=in_place,
        at=at,
        to=to,
        strip=strip,
        add=add,
        rename=rename,
        regex=regex,
        like=like,
        model=model,
        dry_run=dry_run,
        force=force,
    )
    return carried_out(path, output, order)


def ordered(  # noqa: PLR0913 - as above
    *,
    in_place: bool = False,
    at: Iterable[str] = (),
    to: str = "bare",
    strip: Iterable[str] = (),
    add: str = "",
    rename: Iterable[tuple[str, str]] = (),
    regex: Iterable[tuple[str, str]] = (),
    like: Where | None = None,
    model: Any = None,
    dry_run: bool = False,
    force: bool = False,
) -> Order:
    """Read what is wanted, as ``repair`` has it; what is wrong in it is said before any checkpoint is looked at.

    Raises:
        BadTarget: it makes no sense, or ``like`` cannot be used.
    """
    with one_line(os.fspath(like or "")), paused_collector():
        how = rules(to, strip, add, rename, regex)
        return Order(how, wanted_of(like, model), tuple(at), in_place=in_place, dry_run=dry_run, force=force)


def carried_out(path: Where, output: Where | None, order: Order) -> Repair:
    """Repair one checkpoint; as ``repair``."""
    with one_line(os.fspath(path)), paused_collector():
        recovered, ready = _prepared(path, output, order)
        if order.dry_run:
            return Repair(ready.file.path, "", ready.plan)
        target = (
            writing.in_place(ready)
            if order.in_place
            else writing.copy(ready, Path(os.fspath(output or "")), force=order.force)
        )
        return Repair(ready.file.path, target, ready.plan, recovered)


def refuse(path: Where, output: Where | None, order: Order) -> None:
    """See that one checkpoint can be repaired; but for what a run before has left half done, nothing is changed.

    Raises:
        BadTarget: as ``repair``.
    """
    with one_line(os.fspath(path)), paused_collector():
        _, ready = _prepared(path, output, order)
        if order.in_place:
            writing.refuse_in_place(ready)
        elif not order.dry_run:
            writing.refuse_copy(ready, Path(os.fspath(output or "")), force=order.force)


def _prepared(path: Where, output: Where | None, order: Order) -> tuple[bool, writing.Prepared]:
    if not order.dry_run and (output is None) is not order.in_place:
        raise BadTarget(f"{os.fspath(path)}: name either an output or in_place")
    recovered = order.in_place and not order.dry_run and _recovered(path)
    source = usable(opened(path))
    reach(source)
    plan = planned(source, order.how, order.wanted, order.at)
    if order.in_place and any(each.renamed for each in plan):
        deepspeed.refuse_named_apart(source.file)
    return recovered, writing.prepared(source, plan, in_place=order.in_place)  # without which nothing is foretold


def undo(path: Where) -> None:
    """Take back the last repair in place of a checkpoint.

    Raises:
        BadTarget: there was none, or the checkpoint was changed since.
    """
    with one_line(os.fspath(path)):
        main = _undoable(path)
        with guard.alone(main):
            journal.undo(main)


def refuse_undo(path: Where) -> None:
    """See that the last repair in place can be taken back.

    Raises:
        BadTarget: as ``undo``.
    """
    with one_line(os.fspath(path)):
        journal.last_run(_undoable(path))


def _undoable(path: Where) -> Path:
    main = _main(Path(path))
    if not main.exists():
        raise BadTarget(f"{main}: there is no such file")
    guard.refuse_in_place(main)
    return main


def _main(path: Path) -> Path:
    """Return the name of the file beside which the journal of a checkpoint is."""
    if not path.is_dir():
        return path
    return next(iter(sorted(path.glob(f"*{INDEX}"))), path / ".metadata")


def _recovered(path: Where) -> bool:
    main = _main(Path(path))
    if not main.is_file() or not journal_of(main).exists():
        return False
    guard.refuse_in_place(main)
    with guard.alone(main):
        return journal.recover(main)
