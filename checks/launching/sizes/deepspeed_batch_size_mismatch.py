"""DeepSpeed's batch sizes do not multiply out, or its settings are not the Trainer's.

## What happens

DeepSpeed wants train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * number of ranks, and
stops otherwise: "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu *
gradient_acc_step * world_size 16 != 1 * 8 * 1". A configuration that was written for another number of GPUs is the
usual cause, or arguments of the Trainer that differ from those in the JSON file.

The Trainer and Accelerate compare each setting of the configuration with their own argument, before DeepSpeed does:
"... the following DeepSpeed config values that mismatch TrainingArguments values: - ds train_batch_size=32
vs hf train_batch_size (calculated)=4". The calculated one is per_device_train_batch_size times
gradient_accumulation_steps times the number of ranks, so it changes with the number of GPUs.

"Micro batch size per gpu: 0 has to be greater than 0": DeepSpeed divides train_batch_size by the number of ranks and
the steps of accumulation, and it is smaller than their product.

## How to be sure

The four numbers stand in the message; the last is the number of ranks that DeepSpeed sees. If that is
1 although a launcher started several, it is deepspeed-world-size-one.

## How to mend it

Give two of the three sizes and let DeepSpeed compute the third, or write "auto" for all of them where
the Trainer of transformers or Accelerate fills them in.

## Versions and sources

Holds for all versions of DeepSpeed with torch 2.2 to 2.13. Source: `_batch_assertion` in deepspeed/runtime/config.py;
transformers' integrations/deepspeed.py, `trainer_config_finalize`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Ambiguity, Evidence, Finding, Fix, Log, Record, Severity, lint, log_pattern

from ._batch import EQUATION, LAUNCHED, Batch, batch, is_alone

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script

AILMENT = Ailment("DDP452", Severity.ERROR)
NOTHING = r"(Train batch size|Micro batch size per gpu|Gradient accumulation steps): (-?\d+) has to be greater than 0"


PAIR = (
    r"- ds (?P<ds>[\w.]+)=(?P<given>[^\n]{1,80}?) vs (?:hf|arg) "
    r"(?P<hf>[\w.]+(?: \(calculated\))?)=(?P<own>[^\s,]{1,80})"
)


@log_pattern(EQUATION)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report numbers that no one rank more or less would mend."""
    numbers = batch(match)
    if numbers.world > 1 or numbers.ranks <= 1:
        yield _finding(record, match, numbers)


@log_pattern(EQUATION, context=(LAUNCHED,))
def of_one_rank(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Leave open, for one rank, whether there should have been more."""
    numbers = batch(match)
    if numbers.world == 1 and numbers.ranks > 1 and not is_alone(numbers, record, log):
        ambiguity = Ambiguity(
            (
                f"the configuration is for {numbers.ranks} GPUs, and the run has one",
                f"{numbers.ranks} processes run, and each sees itself alone (deepspeed-world-size-one)",
            ),
            f"deepspeed --num_gpus={numbers.ranks} train.py  # a last factor of 1 again: each sees itself alone",
        )
        yield _finding(record, match, numbers, ambiguity)


@log_pattern(
    r"Please correct the following DeepSpeed config values that mismatch (?:TrainingArguments values|kwargs)[^\n]*",
    context=(PAIR,),
)
def of_the_trainer(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read which settings of the configuration are not the Trainer's own arguments."""
    of_lines = ((each, found) for each, found in log.find(PAIR) if each.rank == record.rank)
    pairs = list(re.finditer(PAIR, record.text)) or [found for each, found in of_lines]
    if not pairs:
        return
    total = next((each for each in pairs if each["ds"] == SIZES[0] and each["given"].isdigit()), None)
    ratio = int(total["given"]) / int(total["own"]) if total and total["own"].isdigit() and int(total["own"]) else 0
    more = f", or start {ratio:g} times as many ranks" if ratio > 1 and ratio == int(ratio) and len(pairs) == 1 else ""
    whose = "Accelerate" if "kwargs" in match[0] else "the Trainer"
    yield Finding(
        f"DeepSpeed's configuration is not that of {whose}'s arguments: "
        + ", ".join(f"{each['ds']} is {each['given']}, and {each['hf']} {each['own']}" for each in pairs[:4]),
        (record.proof(pairs[0] if pairs[0].string == record.text else match, "one value in both, or auto"),),
        Fix(
            f"write auto, which is filled in by the arguments{more}",
            diff="\n".join(
                f'-"{each["ds"].rpartition(".")[2]}": {each["given"]},\n+"{each["ds"].rpartition(".")[2]}": "auto",'
                for each in pairs[:4]
            ),
        ),
        record.place,
    )


@log_pattern(NOTHING)
def of_nothing(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Report a size that is given as 0, or is 0 after the division by the ranks."""
    yield Finding(
        f"DeepSpeed's {match[1][0].lower()}{match[1][1:]} is {match[2]}",
        (record.proof(match, "at least 1; train_batch_size at least ranks times steps of accumulation"),),
        Fix(
            "give the size of one GPU, and let DeepSpeed compute the total",
            diff='-"train_batch_size": 4,\n+"train_micro_batch_size_per_gpu": 1,\n+"gradient_accumulation_steps": 1,',
        ),
        record.place,
    )


def _finding(record: Record, match: re.Match[str], numbers: Batch, ambiguity: Ambiguity | None = None) -> Finding:
    product = numbers.micro * numbers.accumulation * numbers.world
    return Finding(
        f"train_batch_size is {numbers.train}, and {numbers.micro} a GPU times {numbers.accumulation} steps of "
        f"accumulation times {numbers.world} ranks is {product}",
        (record.proof(match, f"train_batch_size {product}"),),
        Fix(
            "let DeepSpeed compute the total, or write auto for all three where Trainer or Accelerate fills them in",
            diff=f'-"train_batch_size": {numbers.train},\n+"train_batch_size": "auto",\n'
            '+"train_micro_batch_size_per_gpu": "auto",\n+"gradient_accumulation_steps": "auto",',
        ),
        record.place,
        ambiguity=ambiguity,
    )


SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for sizes that no number of ranks makes right: in a dictionary of a script, or in JSON beside it."""
    if "deepspeed" not in script.imported or re.search(
        r"\[[\"'](?:train_|gradient_acc)\w+[\"']\]\s*=[^=]", script.text
    ):
        return
    for node in script.nodes(ast.Dict):
        written = dict(zip(map(_literal, node.keys), map(_literal, node.values), strict=True))
        if None not in node.keys and (wrong := _wrong(written)):
            key = next(each for each in node.keys if _literal(each) == SIZES[0] and each is not None)
            yield _of_sizes(script, key, wrong, script.seen(key, "a multiple of the others"))
        elif (total := _for_one_rank(script, node)) is not None:
            product = script.code(node.values[node.keys.index(total)])
            yield _of_sizes(
                script,
                total,
                f"train_batch_size is {product}, that of one rank, and several ranks are started",
                script.seen(total, f"{product} * torch.distributed.get_world_size()"),
            )
    for text in script.nodes(ast.Constant):
        is_file = isinstance(text.value, str) and text.value.endswith(".json") and "://" not in text.value
        if is_file and (wrong := _wrong(_json(project.beside(str(text.value))))):
            yield _of_sizes(script, text, wrong, Evidence(wrong, "a multiple of the others", str(text.value)))


def _of_sizes(script: Script, node: ast.expr, wrong: str, seen: Evidence) -> Finding:
    return Finding(
        f"{wrong}: DeepSpeed refuses it",
        (seen,),
        Fix("give the sizes of one GPU, and let DeepSpeed compute the total", diff='-"train_batch_size": ...,'),
        script.place(node),
    )


SEVERAL = re.compile(r"(?:nproc[-_]per[-_]node|num_gpus)[= ]+(?:[2-9]|\d\d)")


def _for_one_rank(script: Script, sizes: ast.Dict) -> ast.expr | None:
    """Return the key of a total that is the product of the other two, in a file that says how several are started."""
    named = {each.value: (each, given) for each, given in zip(sizes.keys, sizes.values, strict=True)
             if isinstance(each, ast.Constant)}  # fmt: skip
    total = named.get(SIZES[0])
    if total is None or not all(name in named for name in SIZES) or not SEVERAL.search(script.text):
        return None
    match total[1]:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            parts = sorted(map(ast.unparse, (left, right)))
            return total[0] if parts == sorted(ast.unparse(named[name][1]) for name in SIZES[1:]) else None
    return None


def _literal(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else node


def _json(text: str | None) -> dict[object, object]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _wrong(written: dict[object, object]) -> str:
    """Return in words why sizes do not multiply out with any number of ranks; empty where one makes them right."""
    train, micro, steps = (written.get(each) for each in SIZES)
    others = {name: each for name, each in zip(SIZES[1:], (micro, steps), strict=True) if name in written}
    if type(train) is not int or not others or any(type(each) is not int or each < 1 for each in others.values()):
        return ""
    product = 1
    for each in others.values():
        product *= each if isinstance(each, int) else 1
    if train % product == 0:
        return ""
    parts = " times ".join(f"{name}={each}" for name, each in others.items())
    return f"train_batch_size is {train}, no multiple of {parts}, with any number of ranks"
