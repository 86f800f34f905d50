"""Every rank loads the checkpoint onto the GPU that it was saved from, mostly GPU 0.

## What happens

`torch.load` without `map_location` puts each tensor back on the device that it was saved from. If rank 0 saved, all
ranks of the node fill GPU 0 with a copy each, beside what rank 0 needs itself. A training that fits when it starts
afresh then ends with "CUDA out of memory" at the resume; or it goes on, and only nvidia-smi shows several processes
on GPU 0.

## How to be sure

The traceback of the error passes through `torch/serialization.py`; or torch lists other processes with memory on this
GPU ("Process 4711 has 9.8 GiB memory in use"), and their pids are those of the other ranks.
`nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv` lists the pids on each GPU.

In a source (`ddpdoctor lint`): `torch.load` without `map_location` feeds `load_state_dict` where every rank comes, in
a file that trains over NCCL.

## How to mend it

Load with `torch.load(path, map_location="cpu")`, and delete the dict after `load_state_dict`.

## Versions and sources

Holds for all versions of torch; the list of processes is printed since 2.1. Source: PyTorch documentation,
"torch.load", and "Saving and Loading Models" for DDP.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    is_open,
    keyword,
    lint,
    log_pattern,
    variables_in,
)

from ._memory import FOREIGN, FULL, LOADING, RESUMED, resumed

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Script, Tree

AILMENT = Ailment("DDP821", Severity.ERROR)


@log_pattern(FULL, supersedes=("cuda-oom",))
def in_torch_load(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise the loading itself by its frame."""
    if frame := re.search(LOADING, record.text):
        yield _finding(record, match, (record.proof(frame, "no allocation on a GPU while a checkpoint is read"),))


@log_pattern(FULL, context=(RESUMED,), supersedes=("cuda-oom",))
def after_a_resume(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Suspect it where other processes hold memory of this GPU shortly after a resume."""
    foreign = re.search(FOREIGN, record.text)
    shown = resumed(record, log)
    if foreign and shown and not re.search(LOADING, record.text):
        ambiguity = Ambiguity(
            (
                "torch.load without map_location on every rank",
                "another job's processes on this GPU",
                "the loaded checkpoint is still held on this GPU (checkpoint-kept-on-gpu)",
            ),
            "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
        )
        yield _finding(record, match, (record.proof(foreign, "no other rank on this GPU"), *shown), ambiguity)


def _finding(
    record: Record, match: re.Match[str], shown: tuple[Evidence, ...], ambiguity: Ambiguity | None = None
) -> Finding:
    return Finding(
        "a checkpoint is loaded onto a GPU, which it fills",
        (record.proof(match, "a checkpoint that is loaded onto the CPU"), *shown),
        Fix(
            "load onto the CPU",
            diff='-ckpt = torch.load(path)\n+ckpt = torch.load(path, map_location="cpu")',
        ),
        record.place,
        ambiguity=ambiguity,
    )


ON_GPUS = re.compile(r"nccl|(?s:\A(?!.*\bgloo\b).*(?:\.cuda\(|[\"']cuda))")
"""What says that the models are on GPUs."""


OWN_GPU = re.compile(r"\bcurrent_device\(\)")
"""What takes the GPU that a process has without a choice: each is shown one of its own, by its launcher."""


def _shows_each_its_own(script: Script) -> bool:
    """Whether the file shows each process a GPU by its rank, before CUDA starts: cuda:0 is another one on each then."""
    shown = [each.value for each in script.nodes(ast.Assign) if "CUDA_VISIBLE_DEVICES" in ast.unparse(each.targets[0])]
    names = [part for each in shown for part in ast.walk(each) if isinstance(part, ast.Name)]
    made = [*shown, *(each for name in names for _, each in script.origins(script.tree, name))]
    return any("rank" in ast.unparse(each).lower() for each in made)


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a checkpoint of a model on a GPU that every rank loads without map_location, into a model."""
    if script.frameworks - {"horovod"} or (OWN_GPU.search(script.text) and "set_device" not in script.text):
        return
    if _shows_each_its_own(script):
        return
    on_gpus = ON_GPUS.search(script.text) or project.says(r"\bnccl\b")
    if not on_gpus and (script.runs_in_ranks or not project.mentions("nccl")):
        return
    for call in script.calls("torch.load"):
        if is_open(call) or len(call.args) != 1 or keyword(call, "map_location") or _is_own(script, call.args[0]):
            continue
        if OF_OTHERS.search(script.code(call.args[0])):
            continue
        if _is_loaded(script, call) and _is_reached(script, call) and not _is_saved_on_cpu(script, project):
            path = script.code(call.args[0])
            right = f'{script.code(call.func)}({path}, map_location="cpu")'
            edits = () if call.keywords else (script.replaced(call, right),)
            yield Finding(
                f"every rank loads {path} onto the GPU that it was saved from, which is GPU 0 where rank 0 saved it",
                (script.seen(call, 'map_location="cpu"'),),
                Fix("load it to the CPU; load_state_dict copies it to the rank's GPU", edits=edits),
                script.place(call),
                severity=Severity.WARNING,
            )


OF_ONE_RANK = re.compile(r"rank|getpid|uuid|hostname|environ|random|te?mp|self\b|global\b", re.IGNORECASE)
"""Words of a function whose answer can be another on each rank."""


def _is_own(script: Script, path: ast.expr) -> bool:
    """Whether each rank can read a file of its own; what a function makes of the same words, or finds, is none."""
    made = [each for _, each in script.origins(script.tree, path)] if isinstance(path, ast.Name) else [path]
    return script.can_differ(path) and not (made and all(_is_of_all(script, each) for each in made))


def _is_of_all(script: Script, made: ast.expr) -> bool:
    """Whether it is a call of a function of the project that gives all ranks the same path."""
    found = script.defined(made.func) if isinstance(made, ast.Call) else None
    if not isinstance(made, ast.Call) or found is None or not isinstance(found[1], ast.FunctionDef):
        return False
    given = (*made.args, *(each.value for each in made.keywords))
    return not OF_ONE_RANK.search(ast.unparse(found[1])) and not any(script.can_differ(each) for each in given)


def _is_saved_on_cpu(script: Script, project: Around) -> bool:
    """Whether all weights that the project saves are moved to the CPU before: they are loaded to where they were."""
    if project.does(OFFLOADS):
        return True
    trees = [script.tree, *(tree for _, tree in project.trees(r"torch\.save"))]
    saved = [(tree, each) for tree in trees for each in tree.of(ast.Call) if ast.unparse(each.func) == "torch.save"]
    weights = [(tree, each) for tree, each in saved if WEIGHTS.search(ast.unparse(each))]
    return bool(weights) and all(TO_CPU.search(ast.unparse(each)) or _is_moved(tree, each) for tree, each in weights)


def _is_moved(tree: Tree, saved: ast.AST) -> bool:
    """Whether a line of its own, before one that saves weights in its function, moves the model: ``net.cpu()``."""
    function = tree.function(saved)
    moves = [each.value for each in tree.of(ast.Expr) if tree.function(each) is function]
    return any(TO_CPU.search(ast.unparse(each)) and each.lineno < getattr(saved, "lineno", 0) for each in moves)


WEIGHTS = re.compile(r"state|model|net|ckpt|checkpoint|dict", re.IGNORECASE)
TO_CPU = re.compile(r"\.cpu\(\)|\.to\([\"']cpu")
OFFLOADS = r"\b(?:offload_to_cpu|cpu_offload)=True"
"""What has FSDP move the weights that it gathers."""


def _is_reached(script: Script, call: ast.Call) -> bool:
    """Whether all ranks come to a line, of this file or of a training in another one that calls it."""
    return script.all_ranks_reach(call) if script.runs_in_ranks else script.ranks_of_others_reach(call)


OF_OTHERS = re.compile(r"pre_?train|teacher|backbone|imagenet", re.IGNORECASE)
"""Names of weights of another training, which are saved wherever that was."""
NUMBERS = re.compile(r"sched|scaler|meter|sampler", re.IGNORECASE)
"""Names of what has a state of plain numbers, which is on no GPU."""


def _is_loaded(script: Script, call: ast.Call) -> bool:
    """Whether what is loaded goes into load_state_dict, in the same function."""
    statement = script.tree.statement(call)
    names = (
        {each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        if statement
        else set()
    )
    for node in script.nodes(ast.Call):
        match node:
            case ast.Call(
                func=ast.Attribute(value=into, attr="load_state_dict"), args=[state, *more], keywords=words
            ) if (
                script.function(node) is script.function(call)
                and not more
                and all(ast.unparse(each) == "strict=True" for each in words)
                and not NUMBERS.search(script.code(into))
            ):  # not strict: weights of another training, from wherever they were saved
                read = variables_in(state)
                if any(each is call for each in ast.walk(state)) or (names | _made_of(script, call, names)) & read:
                    return True
    return False


def _made_of(script: Script, call: ast.Call, names: set[str]) -> set[str]:
    """Return the names that are assigned from one of these in a call's function: ``state = checkpoint["model"]``."""
    own = [each for each in script.nodes(ast.Assign) if script.function(each) is script.function(call)]
    made = [each.targets for each in own if names & variables_in(each.value)]
    return {target.id for targets in made for target in targets if isinstance(target, ast.Name)}
