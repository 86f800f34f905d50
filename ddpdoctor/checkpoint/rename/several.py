"""Repairs several checkpoints, or none of them: all are looked at before the first is changed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ddpdoctor.checkpoint.reader import INDEX
from ddpdoctor.checkpoint.rename.edit.edits import beside
from ddpdoctor.checkpoint.rename.repair import Order, Repair, carried_out, refuse, refuse_undo, undo
from ddpdoctor.facets import BadTarget


class SomeRefused(BadTarget):
    """Some of several checkpoints cannot be changed, so that none was; ``reasons`` has a text for each of those."""

    def __init__(self, reasons: Sequence[BadTarget]) -> None:
        """Keep the reasons."""
        super().__init__("; ".join(map(str, reasons)))
        self.reasons = tuple(reasons)


def repair_all(
    paths: Sequence[str], output: str | None, order: Order, *, folder: bool = False, of: Path | None = None
) -> list[Repair]:
    """Repair checkpoints; ``output`` is the name of the copy, or, for several or a ``folder``, of that of all copies.

    ``of`` is the folder that they all are in, where it was named itself: what else it needs to be loaded is copied as
    well, as it is. A copy that took the place of another file, as the order allows, is not taken back.

    Raises:
        SomeRefused: one cannot be repaired, so that none was; or it failed, and the others were taken back.
    """
    if len(paths) == 1 and not folder:
        return [carried_out(paths[0], output, order)]
    _refuse_doubled(paths)
    outputs = _outputs(paths, output)
    made = None if output is None else _make_folder(output)
    done: list[Repair] = []
    companions: list[tuple[Path, Path]] = []
    try:
        _see_all(refuse, [(path, out, order) for path, out in zip(paths, outputs, strict=True)])
        replaced = {out for out in outputs if out is not None and Path(out).exists()}
        for path, out in zip(paths, outputs, strict=True):
            done.append(carried_out(path, out, order))
        if made is not None and of is not None:
            companions = [(file, made / file.name) for file in beside(of)]
            for file, copy in companions:
                shutil.copy2(file, copy)
    except BaseException:
        for each in reversed(done):
            if each.output not in replaced:
                _take_back(each)
        if made:
            with suppress(OSError):
                for _, copy in companions:
                    copy.unlink(missing_ok=True)
                made.rmdir()
        raise
    return done


def undo_all(paths: Sequence[str]) -> None:
    """Take back the last repair in place of each checkpoint.

    Raises:
        SomeRefused: of one this cannot be done, so that none was changed.
    """
    _refuse_doubled(paths)
    _see_all(refuse_undo, [(path,) for path in paths])
    for path in paths:
        undo(path)


def _see_all(look: Callable[..., None], arguments: Iterable[tuple[object, ...]]) -> None:
    reasons = []
    for each in arguments:
        try:
            look(*each)
        except BadTarget as exc:
            reasons.append(exc)
    if reasons:
        raise SomeRefused(reasons)


def _refuse_doubled(paths: Sequence[str]) -> None:
    counted = Counter(Path(path).resolve() for path in paths)
    for path in paths:
        if counted[Path(path).resolve()] > 1:
            raise BadTarget(f"{path} is named twice")


def _outputs(paths: Sequence[str], output: str | None) -> list[str | None]:
    if output is None:
        return [output] * len(paths)
    names = [_name(Path(path)) for path in paths]
    doubled = {name: path for name, path in zip(names, paths, strict=True) if names.count(name) > 1}
    if doubled:
        name, path = next(iter(doubled.items()))
        raise BadTarget(f"{path}: several copies would be called {Path(output) / name}: repair them one by one")
    return [str(Path(output) / name) for name in names]


def _name(path: Path) -> str:
    return Path(path.name.removesuffix(INDEX)).stem if path.name.endswith(INDEX) else path.name


def _make_folder(output: str) -> Path | None:
    """Make the folder of the copies; None when it was there."""
    try:
        Path(output).mkdir()
    except FileExistsError:
        if Path(output).is_dir():
            return None
        raise BadTarget(f"{output} is the folder of several copies, and a file is there") from None
    except OSError as exc:
        raise BadTarget(f"{output} cannot be the folder of several copies: {exc.strerror}") from None
    return Path(output)


def _take_back(done: Repair) -> None:
    if not done.output:
        return
    with suppress(BadTarget, OSError):
        if done.output != done.path:
            shutil.rmtree(done.output) if Path(done.output).is_dir() else Path(done.output).unlink()
        elif done.changed:
            undo(done.path)
