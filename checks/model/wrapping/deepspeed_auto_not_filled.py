"""DeepSpeed's configuration says "auto" where nobody fills in a number.

## What happens

`"auto"` is a word of the transformers Trainer and of Accelerate: they replace it by their own arguments before they
hand the configuration on. A script that calls `deepspeed.initialize` itself hands on the text, and DeepSpeed compares
it with a number: "TypeError: '>' not supported between instances of 'str' and 'int'" in `_batch_assertion`, "'<=' not
supported between instances of 'float' and 'str'" in an optimizer, "warmup_num_steps must be a positive integer, got
auto"; with `gradient_clipping` only in the first step.

The Trainer and Accelerate compute ZeRO-3's sizes of `hidden_size` in the model's configuration. That of a model of
several parts (an image encoder and a language model) has it only within `text_config`, which older versions do not look
into: "The model's config file has neither `hidden_size` nor `hidden_sizes` entry, therefore it's not possible to
automatically fill out the following `auto` entries in the DeepSpeed config file".

## How to be sure

In an error: it comes of DeepSpeed's reading of its configuration, or of what it makes of that. In a source
(`ddpdoctor lint`): the dictionary, or the JSON file, that `deepspeed.initialize` is given has the word, and nothing in
reach of the script is Accelerate's or the Trainer's, or compares with it.

## How to mend it

Write numbers; of the three batch sizes DeepSpeed computes the one that is left out.

    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 1,

The sizes of ZeRO-3 that the Trainer would compute: `reduce_bucket_size` hidden_size², `stage3_prefetch_bucket_size` 0.9
times as much, `stage3_param_persistence_threshold` 10 times hidden_size. They change memory and speed, not the result.

## Versions and sources

Source: transformers documentation, "DeepSpeed", and its integrations/deepspeed.py, `trainer_config_finalize`;
deepspeed/runtime/config.py, `_batch_assertion`. Seen with DeepSpeed 0.19 and torch 2.13; the sizes of ZeRO's buckets
and `bf16.enabled` may say "auto" there.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, keyword, lint, log_pattern

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP1525", Severity.ERROR)
AUTO = "auto"
SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
NUMBERS = {
    *SIZES,
    *("gradient_clipping", "lr", "betas", "eps", "weight_decay"),
    *("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"),
}
"""Settings that DeepSpeed reads as they are."""
NAMES = {"train_batch": SIZES[0], "micro_batch": SIZES[1], "grad_acc": SIZES[2]}
"""What DeepSpeed's own lines call them."""
COMPARED = (
    r"TypeError: '[<>]=?' not supported between instances of '(?:float|int|str)' and '(?:float|int|str)'"
    r"|ValueError: (\w+) must be a positive integer, got auto"
)
READERS = re.compile(r"deepspeed/runtime/(?:config|lr_schedules)\.py$|torch/optim/\w+\.py$|deepspeed/ops/")
CLIPS = "self.gradient_clipping() >"
FILLED = r"accelerate|transformers|HfDeepSpeedConfig|(?:[=!]=|\bis|\bin)\s*[(\[{]?\s*[\"']auto[\"']"
OF_4096 = {
    "reduce_bucket_size": 4096 * 4096,
    "stage3_prefetch_bucket_size": 9 * 4096 * 4096 // 10,
    "stage3_param_persistence_threshold": 10 * 4096,
}
EXAMPLES = {SIZES[0]: 64, SIZES[1]: 8, "lr": 1e-4, "weight_decay": 0.01, "warmup_num_steps": 100}


@log_pattern(COMPARED)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Look whether DeepSpeed compares what its configuration has given it."""
    files = [each.file.replace("\\", "/") for each in record.frames]
    by_deepspeed = any("deepspeed/runtime/" in each for each in files)
    if by_deepspeed and (match[1] or "'str'" in match[0]) and (READERS.search(files[-1]) or CLIPS in record.text):
        name = match[1] or _name(record.text)
        yield Finding(
            f"DeepSpeed was given text for {name or 'a number'}: {_why(record.text)}",
            (record.proof(match, "a number"),),
            _mend(name or SIZES[1]),
            record.place,
        )


@log_pattern(
    r"it's not possible to automatically fill out the following `auto` entries in the DeepSpeed config file: "
    r"\[(?P<names>[^\]\n]{1,400})"
)
def of_hidden_size(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The Trainer and Accelerate compute these of the model's hidden_size, and its configuration has none."""
    without = "the model's configuration has no hidden_size"
    if "Can't find `model.config`" in record.text:
        without = "the model has no config with a hidden_size"
    names = [each.rpartition(".")[2] for each in re.findall(r"[\w.]+", match["names"])]
    yield Finding(
        f"{without}, of which auto is computed for {', '.join(names)}",
        (record.proof(match, "numbers, or a configuration with hidden_size at its top"),),
        Fix(
            "write numbers for them, here those of a hidden_size of 4096 (h * h, 0.9 * h * h, 10 * h)",
            diff="\n".join(f'-"{each}": "auto",\n+"{each}": {OF_4096.get(each, 1)},' for each in names),
        ),
        record.place,
    )


def _mend(name: str) -> Fix:
    return Fix(
        "write a number: what DeepSpeed reads before the Trainer or Accelerate fills in auto, it takes as it is",
        diff=f'-"{name}": "auto",\n+"{name}": {EXAMPLES.get(name, 1)},',
    )


def _why(text: str) -> str:
    """Tell whether the configuration went by the Trainer, which fills it in when it starts, or was never filled in."""
    if "zero/partition_parameters.py" in text.replace("\\", "/") and "transformers" in text:
        return "zero.Init reads it before the Trainer, which starts later, has filled in auto"
    return "no Trainer and no Accelerate is there to fill in auto"


def _name(text: str) -> str:
    """Return the setting that the last line of code in a traceback compares; empty where it is none that is known."""
    lines = re.findall(r"^\s+(?:assert \(|if not [\d.]+ <= |if self\.)(\w+)", text, re.MULTILINE)
    last = lines[-1] if lines else ""
    return NAMES.get(last, last if last in NUMBERS else "")


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look into the dictionary, or the JSON file, that deepspeed.initialize is given."""
    for call in script.calls("deepspeed.initialize"):
        given = keyword(call, "config") or keyword(call, "config_params")
        if given is None or project.does(FILLED):
            continue
        for name, node, seen in _written(script, project, given):
            yield Finding(
                f'"{name}" is "auto", which deepspeed.initialize takes for a number',
                (seen, script.seen(call)),
                _mend(name),
                script.place(node),
            )


def _written(script: Script, project: Around, given: ast.expr) -> Iterator[tuple[str, ast.expr, Evidence]]:
    """Yield the first setting that is the word: its name, where it stands, and how it is written."""
    held = script.value(given)
    if isinstance(held, ast.Dict) and not _changed(script, given):
        for key in [each for each in _keys(held) if each.value in NUMBERS][:1]:
            yield str(key.value), key, script.seen(key, "a number")
    if isinstance(held, ast.Constant) and str(held.value).endswith(".json"):
        for name in _in_json(project.beside(str(held.value)))[:1]:
            yield name, held, Evidence(f'"{name}": "{AUTO}"', "a number", str(held.value))


def _keys(written: ast.Dict) -> Iterator[ast.Constant]:
    """Yield the keys of a dictionary, and of those in it, whose value is the word."""
    for node in ast.walk(written):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and value.value == AUTO:
                yield key


def _changed(script: Script, given: ast.expr) -> bool:
    """Whether something is stored into a dictionary by its name, or it is updated."""
    name = re.escape(ast.unparse(given)) if isinstance(given, (ast.Name, ast.Attribute)) else ""
    return bool(name) and re.search(rf"\b{name}(?:\[.*\]\s*=[^=]|\.update\(|\.setdefault\()", script.text) is not None


def _in_json(text: str | None) -> list[str]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return []
    return [name for name, value in _pairs(found) if value == AUTO and name in NUMBERS]


def _pairs(found: object) -> Iterator[tuple[str, object]]:
    for name, value in found.items() if isinstance(found, dict) else ():
        yield name, value
        yield from _pairs(value)
