"""Writes the header of a safetensors file again with other names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ddpdoctor.checkpoint.formats.safetensors import NOTES, PREFIX, Header
from ddpdoctor.checkpoint.pickles.values import UnreadableError
from ddpdoctor.checkpoint.rename.plan import modules, moved

LONGEST = 100_000_000  # bytes of a header that the library reads
ALIGNED = 8  # the library pads the header to a multiple


def packed(header: Header, names: Mapping[str, str]) -> bytes:
    """Return the first bytes of the file with other names; as long as they are now, where that is possible.

    Raises:
        UnreadableError: the names are too long for the format, or one is its own.
    """
    if NOTES in names.values():
        raise UnreadableError(f"a tensor would be called {NOTES}, which is the format's own name for its notes")
    content = {names.get(key, key): value for key, value in header.content.items()}
    if isinstance(notes := content.get(NOTES), dict):
        content[NOTES] = annotated(notes, names)
    try:
        data = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UnreadableError("a name is no text that the format allows") from None
    length = max(len(data) + -len(data) % ALIGNED, header.length)
    if length > LONGEST:
        raise UnreadableError(f"its header would take {length} bytes, more than safetensors reads")
    return length.to_bytes(PREFIX, "little") + data.ljust(length)


def annotated(notes: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Rename in notes: of tensors that share memory one is in the file, and the notes say for which others it stands.

    Source: safetensors.torch.save_model, and split_torch_state_dict_into_shards of huggingface_hub.
    """
    paths = modules(names)
    return {
        moved(key, paths) if isinstance(value, str) and value in names else key: names.get(value, value)
        if isinstance(value, str)
        else value
        for key, value in notes.items()
    }
