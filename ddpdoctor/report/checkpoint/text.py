"""What a checkpoint holds, as text and as data."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from ddpdoctor.checkpoint import CheckpointFile, Format, StateDict, subscript
from ddpdoctor.checkpoint.beside import LONGEST
from ddpdoctor.checkpoint.contents import as_numbers
from ddpdoctor.checkpoint.keys import FEW_PARTS, is_averaged
from ddpdoctor.checkpoint.pickles.allowed import is_allowed
from ddpdoctor.checkpoint.pickles.dangerous import harm_of
from ddpdoctor.checkpoint.rename.planning import why_refused
from ddpdoctor.report.checkpoint.adapters import of_lightning, shared_part
from ddpdoctor.report.checkpoint.data import MAKERS, state_dict_data
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import printable
from ddpdoctor.shell import shell_join

if TYPE_CHECKING:
    from ddpdoctor.checkpoint.pairing import Pairing

LIGHTNING = "pytorch-lightning_version"
MARGIN = 11


def size_text(count: int) -> str:
    """Return a number of bytes as people say it."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:  # noqa: PLR2004 - the SI step
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def inspect_text(file: CheckpointFile, style: Style = PLAIN, *, keys: bool = False) -> str:
    """Describe a checkpoint for people."""
    return "\n".join(_lines(file, style, keys=keys))


def _lines(file: CheckpointFile, style: Style, *, keys: bool) -> Iterator[str]:
    label = f" ({file.label})" if file.label else ""
    yield from style.wrap(printable(f"{file.path}: {file.format.value}{label}, {size_text(file.size)}"), "  ", "")
    if file.damage:
        yield from _labelled(style, "broken", file.damage)
    if file.half_done:
        yield _margin("mend") + shell_join(("ddpdoctor", "repair", file.path, "--undo"), style.encoding)
    if file.opaque:
        yield from _labelled(style, "not read", file.opaque)
    for module in file.modules:
        yield from _labelled(
            style, "module", f"{subscript('ckpt', module.location)} is a pickled {module.kind}, not a state dict"
        )
    for state_dict in file.state_dicts:
        yield from _state_dict(file, state_dict, style, keys=keys)
    yield from _optimizers(file, style)
    yield from _tree(file, style)
    yield from _notes(file, style)
    if file.globals and file.format is not Format.DCP:  # whose metadata torch unpickles in full
        yield from _globals(file, style)
    for name in file.globals:
        if harm := harm_of(name):
            yield from _labelled(
                style, "danger", f"{name} {harm} {_when(file.format)}: load it nowhere, ask who wrote it"
            )


def _optimizers(file: CheckpointFile, style: Style) -> Iterator[str]:
    for optimizer in file.optimizers:
        where, names = subscript("ckpt", optimizer.location), set(optimizer.names)
        said = f"{where} is kept by names of parameters, {len(names)} of them"
        if all(each.isdecimal() for each in names):
            said = (
                f"{where} has the numbers of parameters as text: load_state_dict leaves the states of all {len(names)} "
                f"aside, without an error; before it: {as_numbers(optimizer.location)}"
            )
        yield from _labelled(style, "optimizer", said)


def _notes(file: CheckpointFile, style: Style) -> Iterator[str]:
    for note in file.notes:
        if note.command:
            yield _margin(note.label) + shell_join(note.command, style.encoding)
        else:
            yield from _labelled(style, note.label, note.text)


def _when(form: Format) -> str:
    if form is Format.DCP:
        return "when torch.distributed.checkpoint reads this"
    return "when this is unpickled" if not form.loads else "when this is loaded with weights_only=False"


def _tree(file: CheckpointFile, style: Style) -> Iterator[str]:
    """Yield the containers from the outermost to those that hold a state dict."""
    if any(not state_dict.location for state_dict in file.state_dicts):
        return
    for item in file.items:
        yield from _labelled(style, "holds", f"{item.key}: {item.kind}")
        below = [each for each in file.state_dicts if each.location[0] == item.key and len(each.location) > 1]
        for each in below:
            yield from _labelled(style, "", f"  {subscript('', each.location[1:])}: {len(each.entries)} tensors")


def _state_dict(file: CheckpointFile, state_dict: StateDict, style: Style, *, keys: bool) -> Iterator[str]:
    about = state_dict_data(state_dict)
    dtypes = ", ".join(f"{name} {count}" for name, count in about["dtypes"].items())
    sizes = f"{about['tensors']} tensors, {about['elements']:,} elements, {size_text(about['bytes'])}"
    yield from style.wrap(printable(f"{subscript('ckpt', state_dict.location)}: {sizes}: {dtypes}"), "  ", "")
    prefix = about["prefix"]
    if prefix:
        yield from _labelled(
            style, "prefix", f"{prefix['text']} on {prefix['keys']} of {about['tensors']} keys: {prefix['by']}"
        )
    if about["inside"]:
        yield from _inside(file, about["inside"], style)
    if about["kind"]:
        yield from _labelled(style, "kind", about["kind"])
    averaged = is_averaged(state_dict.keys)
    if refused := why_refused(state_dict):
        yield from _labelled(style, "refused", f"a repair, as it is: {refused}")
    elif prefix and (averaged or not about["kind"]):
        yield _margin("taken off" if averaged else "bare keys") + shell_join(
            ("ddpdoctor", "repair", file.path, "-o", _bare(Path(file.path))), style.encoding
        )
    yield from _fronts(file, state_dict, about, style)
    if keys:
        rows = [(entry.key, "x".join(map(str, entry.shape)), entry.dtype) for entry in state_dict.entries]
        yield printable(tabulate(rows, headers=("key", "shape", "dtype"), disable_numparse=True))


def _fronts(file: CheckpointFile, state_dict: StateDict, about: Mapping[str, Any], style: Style) -> Iterator[str]:
    """Yield what else the keys begin with, and whose it is: PEFT's, a LightningModule's, or a part of the model."""
    keys = state_dict.keys
    if about["adapter"]:
        yield from _labelled(style, "adapter", about["adapter"])
    elif about["kind"]:
        return
    elif about["front"] == ["model"] and any(item.key == LIGHTNING for item in file.items):
        front = of_lightning(keys)
        them = "it off" if front == "model." else "all of it off"
        yield from _labelled(
            style, "prefix", f"model. on all keys: the LightningModule's attribute; --strip {front} takes {them}"
        )
    elif not about["prefix"] and not about["inside"] and (part := shared_part(keys)):
        yield from _labelled(
            style, "front", f"{part} on all keys; where the model has no such part, --strip {part} takes it off"
        )


def _inside(file: CheckpointFile, parts: Mapping[str, str], style: Style) -> Iterator[str]:
    """Yield which parts of the model look as if a wrapper were around each of them alone, and what takes that off."""
    more = f" and {len(parts) - FEW_PARTS} more" if len(parts) > FEW_PARTS else ""
    shown = ", ".join(f"{old}." for old in [*parts][:FEW_PARTS]) + more
    about = f"{shown} on all keys of that part: {MAKERS['module']} around it, or a layer called so"
    yield from _labelled(style, "prefix", about)
    options = [f"--map={old}={new}" for old, new in parts.items()] if not more else ["--model", "TARGET:NAME"]
    command = ("ddpdoctor", "repair", file.path, *options, "-o", _bare(Path(file.path)))
    yield _margin("bare keys") + shell_join(command, style.encoding)


def _bare(path: Path) -> str:
    """Return the name of a copy with bare keys, which is no longer than a name can be."""
    stem, end = path.stem, f".bare{path.suffix}"
    while stem and len(os.fsencode(stem + end)) > LONGEST:
        stem = stem[:-1]
    return str(path.with_name(stem + end))


def _globals(file: CheckpointFile, style: Style) -> Iterator[str]:
    refused = [name for name in file.globals if not is_allowed(name)] if file.format.loads else []
    imported = [name for name in file.globals if name not in set(refused)]
    yield from _labelled(style, "imports", ", ".join(imported) or "nothing that is allowed")
    if refused:
        yield from _labelled(style, "refused", f"{', '.join(refused)} (by torch.load with weights_only=True)")


def _labelled(style: Style, label: str, text: str) -> Iterator[str]:
    return style.wrap(printable(text), " " * (MARGIN + 1), _margin(label))


def _margin(label: str) -> str:
    return f"  {label.ljust(MARGIN - 2)} "


def pairing_text(pairing: Pairing, *, keys: bool) -> str:
    """Describe how two state dicts agree, key by key."""
    rows = [row for row in pairing.rows if keys or row[0] != "same"]
    counts = Counter(row[0] for row in pairing.rows)
    head = ", ".join(f"{count} {word}" for word, count in counts.items())
    where = f"{subscript('ckpt', pairing.location)} beside {subscript('other', pairing.other)}: {head}"
    table = tabulate(rows, headers=("", "key", "other"), disable_numparse=True) if rows else ""
    return printable("\n".join(part for part in (where, table) if part))
