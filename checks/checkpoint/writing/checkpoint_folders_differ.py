"""The ranks save, or look for, one checkpoint in different folders.

## What happens

`engine.save_checkpoint(folder, tag)` writes a part of the checkpoint on each rank: its part of the optimizer's state,
under ZeRO 3 of the weights, too. With a folder or a tag of each rank's own the parts lie apart, and no folder holds a
checkpoint. Nothing fails until one is loaded: "could not find checkpoint" or a missing `*_optim_states.pt`.

So it is with `torch.distributed.checkpoint.save`: each rank writes its shards, rank 0 the `.metadata` that says where
they are. A folder with the rank in its name has the shards of one rank, and only that of rank 0 has metadata.

The transformers Trainer writes its checkpoints on rank 0, and with `load_best_model_at_end` each rank loads the best of
them from its own `output_dir`. Where that is another one on each rank (`tempfile.mkdtemp()`, a time stamp), the other
ranks go on with their last weights ("Could not locate the best model"), and evaluate another model than rank 0 does.
With `resume_from_checkpoint` they find no checkpoint to resume from, and fail.

## How to be sure

List the folder after a save: there is one `*_optim_states.pt`, or one `__N_0.distcp`, for each rank. In a running
training (`ddpdoctor run`) the ranks' folders, or tags, are compared before the first save; in a source
(`ddpdoctor lint`) the folder is made of the rank.

## How to mend it

Give all ranks one folder and one tag. What one of them decides, such as a time stamp, it broadcasts:

    stamp = [time.strftime("%Y%m%d-%H%M%S")]
    torch.distributed.broadcast_object_list(stamp, src=0)
    engine.save_checkpoint(f"runs/{stamp[0]}")        # dcp.save(state, checkpoint_id=f"runs/{stamp[0]}")

## Versions and sources

Sources: DeepSpeed documentation, "Model Checkpointing": all processes must call it; transformers/trainer.py,
`_load_best_model`. Seen with DeepSpeed 0.19, transformers 5.23 and torch 2.13 CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    RESUMED,
    TRAINER,
    Ailment,
    Evidence,
    Fact,
    Finding,
    Fix,
    SavesInto,
    Severity,
    Training,
    calls_at,
    dotted,
    keyword,
    lint,
    place,
    watch,
)

from ..._scripts.source import engine_of

if TYPE_CHECKING:
    from ddpdoctor.check import Script

AILMENT = Ailment("DDP838", Severity.ERROR)
OF_A_RANK = {Fact.RANK, Fact.LOCAL_RANK}
MOST = 8  # ranks that are named
FIX = Fix(
    "give all ranks one folder and one tag; what one rank decides, it broadcasts",
    diff='-engine.save_checkpoint(f"out/rank{rank}")\n+engine.save_checkpoint("out")',
)
DCP = "torch.distributed.checkpoint"
SAVES = (f"{DCP}.save", f"{DCP}.async_save", f"{DCP}.state_dict_saver.save")
OF_DCP = Fix(
    "give all ranks one folder: each writes its own files into it; what one rank decides, it broadcasts",
    diff='-dcp.save(state, checkpoint_id=f"out/rank{rank}")\n+dcp.save(state, checkpoint_id="out")',
)
OF_TRAINER = Fix(
    "give all ranks one output_dir",
    diff='-TrainingArguments(output_dir=tempfile.mkdtemp(), ...)\n+TrainingArguments(output_dir="out", ...)',
)


@watch(SavesInto)
def while_training(event: SavesInto, training: Training) -> Iterator[Finding]:
    """Compare where the ranks of this training save, once all have come to it."""
    if event.number:
        return
    ranks = training.complete(SavesInto, number=0, framework=event.framework)
    places = {rank: (each.folder, each.tag) for rank, each in ranks.items()}
    if len(set(places.values())) < 2:  # noqa: PLR2004 - to differ takes two
        return
    what = "tag" if len({folder for folder, _ in places.values()}) == 1 else "folder"
    of_trainer = event.framework == TRAINER.name
    looks = "resume_from_checkpoint" if event.tag == RESUMED else "load_best_model_at_end"
    yield Finding(
        f"each rank has an output_dir of its own, and {looks} finds nothing but on rank 0"
        if of_trainer
        else f"each rank saves its part of the checkpoint under a {what} of its own: none of them is complete",
        tuple(
            Evidence(f"{what} {tag if what == 'tag' else folder}", f"one {what} for all ranks", f"rank {rank}")
            for rank, (folder, tag) in list(places.items())[:MOST]
        ),
        _told(event) or {TRAINER.name: OF_TRAINER, DCP: OF_DCP}.get(event.framework, FIX),
        place(event.site),
    )


def _told(event: SavesInto) -> Fix | None:
    """Return how rank 0 tells the others its folder, where the line that saves has a name for it; None elsewhere."""
    if event.framework != DCP or event.site is None:
        return None
    for call in calls_at(event.site.file, event.site.line):
        folder = keyword(call, "checkpoint_id")
        if isinstance(folder, ast.Name):
            return Fix(
                "give all ranks one folder: what is made of the time, or drawn, is rank 0's",
                diff=f"+told = [{folder.id}]\n+torch.distributed.broadcast_object_list(told, src=0)\n"
                f"+{folder.id} = told[0]\n {' '.join(ast.unparse(call).split())}",
            )
    return None


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a folder that is made of the rank."""
    engines = {name for call in script.calls("deepspeed.initialize") if (name := engine_of(script, call))}
    shared = [each for name in SAVES for each in script.calls(name) if not _is_alone(each)]
    for call in script.nodes(ast.Call):
        fix = FIX
        match call:
            case ast.Call(func=ast.Attribute(attr="save_checkpoint", value=owner)) if dotted(owner) in engines:
                folder = keyword(call, "save_dir") or (call.args[0] if call.args else None)
            case _ if call in shared:
                folder, fix = keyword(call, "checkpoint_id"), OF_DCP
            case _:
                continue
        made = script.value(folder) if folder is not None else None
        number = next((each for each in ast.walk(made) if _is_rank(script, each)), None) if made is not None else None
        if number is not None:
            yield Finding(
                f"each rank saves its part of the checkpoint in a folder of its own, by {ast.unparse(number)}",
                (script.seen(call, "one folder for all ranks"), script.seen(number)),
                fix,
                script.place(call),
            )


def _is_alone(call: ast.Call) -> bool:
    """Whether a rank saves by itself, or with a group of its own."""
    return keyword(call, "no_dist") is not None or keyword(call, "process_group") is not None


def _is_rank(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and script.fact(node) in OF_A_RANK
