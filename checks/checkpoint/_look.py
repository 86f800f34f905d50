"""What checks of checkpoints share: the state dicts to look at, and the lines of Python that load or mend them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.check import CheckpointFile, Format, NotRun, StateDict, shell_join, subscript

if TYPE_CHECKING:
    from ddpdoctor.check import Strip

MOST_ROWS = 10
PICKLED = {Format.TORCH, Format.LEGACY}


def whole(checkpoint: CheckpointFile) -> CheckpointFile:
    """Return the file when its contents are told.

    Raises:
        NotRun: it is damaged, no checkpoint, or of a format that is not looked into.
    """
    path = checkpoint.path
    if checkpoint.damage:
        raise NotRun(f"{path} is broken: {checkpoint.damage}")
    if checkpoint.opaque:
        raise NotRun(f"{path}: {checkpoint.opaque}")
    if checkpoint.format not in {*PICKLED, Format.SAFETENSORS, Format.DCP, Format.SHARDED}:
        raise NotRun(f"{path} is a {checkpoint.format.value}")
    return checkpoint


def state_dicts(checkpoint: CheckpointFile) -> tuple[StateDict, ...]:
    """Return the state dicts of the file.

    Raises:
        NotRun: it has none.
    """
    if not (found := whole(checkpoint).state_dicts):
        raise NotRun(f"{checkpoint.path} holds no state dict")
    return found


def named(state_dict: StateDict) -> str:
    """Return the name of a state dict as the user reaches it."""
    return subscript("ckpt", state_dict.location) if state_dict.location else "the file"


def few(names: Iterable[str], most: int = 3) -> str:
    """List the first names, and say how many more there are."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def quoted(text: str) -> str:
    """Write a string literal."""
    return '"' + repr(text)[1:-1].replace('"', '\\"') + '"' if "'" not in text else repr(text)


def beside(path: str, word: str) -> str:
    """Return the name of a new file beside another: ``last.bare.pt``."""
    file = Path(path)
    return str(file.with_name(f"{file.stem}.{word}{file.suffix}"))


def load_lines(checkpoint: CheckpointFile, state_dict: StateDict) -> list[str]:
    """Write the lines that load ``ckpt`` and ``state`` from the file."""
    path = checkpoint.path
    if checkpoint.format is Format.SAFETENSORS:
        return ["from safetensors.torch import load_file", f"ckpt = state = load_file({quoted(path)})"]
    if checkpoint.format is Format.SHARDED:
        return [
            "from pathlib import Path",
            "from safetensors.torch import load_file",
            f'parts = Path({quoted(path)}).glob("*.safetensors")',
            "state = {key: value for part in parts for key, value in load_file(part).items()}",
        ]
    convert = [
        "from torch.distributed.checkpoint.format_utils import dcp_to_torch_save",
        f"dcp_to_torch_save({quoted(path)}, {quoted(f'{path}.pt')})",
    ]
    file = f"{path}.pt" if checkpoint.format is Format.DCP else path
    return [
        *(convert if checkpoint.format is Format.DCP else ()),
        "import torch",
        f'ckpt = torch.load({quoted(file)}, map_location="cpu", weights_only=True)',
        f"state = {subscript('ckpt', state_dict.location)}",
    ]


def repair_command(path: str, *options: str) -> tuple[str, str]:
    """Write the command that gives a copy of the checkpoint other keys, and name the copy."""
    new = beside(path, "bare")
    return shell_join(["ddpdoctor", "repair", path, *options, "-o", new]), new


def strip_lines(strip: Strip) -> list[str]:
    """Write the lines that take a prefix out of ``state`` and of its ``_metadata``."""
    lines = ["from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present"] if strip.front else []
    lines += [f'consume_prefix_in_state_dict_if_present(state, "{segment}.")' for segment in strip.front]
    if strip.inside:
        segments = ", ".join(f'"{segment}"' for segment in strip.inside)
        lines += [
            'for names in (state, getattr(state, "_metadata", {})):',
            "    for key in list(names):",
            f'        bare = ".".join(part for part in key.split(".") if part not in {{{segments}}})',
            "        names[bare] = names.pop(key)",
        ]
    return lines


def pasted(lines: Iterable[str]) -> str:
    """Make a shell command of lines of Python."""
    return "\n".join(["python3 - <<'END'", *lines, "END"])
