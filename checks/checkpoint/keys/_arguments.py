"""The arguments of a model that a script builds, and what of them a checkpoint contradicts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Fix,
    Record,
)

if TYPE_CHECKING:
    from .._refusal import Shape


def vocabulary(shapes: tuple[Shape, ...]) -> Fix | None:
    """Return what helps where all that differs is how many rows an embedding has, and what is as long as it."""
    embedding = next((each for each in shapes if EMBEDDING.search(each.key)), None)
    rows = [(each.file.split(", "), each.model.split(", ")) for each in shapes]
    if embedding is None or len({(file[0], model[0]) for file, model in rows}) != 1:
        return None
    if any(file[1:] != model[1:] for file, model in rows):
        return None
    (file, _), (model, _) = (each.partition(", ")[::2] for each in (embedding.file, embedding.model))
    return Fix(
        f"the vocabulary is another: {file} words in the file, {model} in the model. Take the tokenizer or dictionary "
        "that the file was trained with, and no other limit on its words",
        diff=f"-model = build_model(vocab_size={model})\n"
        f"+model = build_model(vocab_size={file})   # rows of {embedding.key}",
    )


def arguments_of(record: Record, path: str) -> Fix:
    """Return how the model is built as it was saved, in the names that the log has."""
    script = (record.place.file or "train.py").replace("\\", "/").rpartition("/")[2]
    return replace(
        ARGUMENTS,
        command=f"ddpdoctor inspect {path} --keys\n"
        f"ddpdoctor check --checkpoint {path} --model {script}:build_model   # your function that builds it",
    )


EMBEDDING = re.compile(r"embed|\bwte\b|tok_|lookup|lm_head|word", re.IGNORECASE)
ARGUMENTS = Fix(
    "build the model with the arguments of the training that wrote the file; see key by key what differs",
    command="ddpdoctor inspect last.pt --keys\nddpdoctor check --checkpoint last.pt --model train.py:build_model",
)
