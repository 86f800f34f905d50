"""The rank is taken from Slurm in the batch script, where it is 0, and given to all tasks.

## What happens

The batch script itself runs once, on the first node, and Slurm tells it `SLURM_PROCID=0`, `SLURM_NODEID=0` and
`SLURM_LOCALID=0`. `srun torchrun --node_rank=$SLURM_PROCID` is expanded there, so every node is told that it is node 0.
All of them open the store, each waits for the others, and the rendezvous times out. `export RANK=$SLURM_PROCID` above
`srun python train.py` gives rank 0 to every task, and `export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID` GPU 0.

## How to be sure

`srun echo $SLURM_PROCID` prints 0 for each task, `srun bash -c 'echo $SLURM_PROCID'` the number of each.

In a file (`ddpdoctor lint`): it has a header of #SBATCH with several tasks or nodes, and the variable is expanded
outside of single quotes.

## How to mend it

Let each task expand it, `srun bash -c 'torchrun --node_rank=$SLURM_PROCID ...'`; or leave it out with
`--rdzv_backend=c10d`, which needs no number; or read `SLURM_PROCID` in the script.

## Versions and sources

Source: Slurm, sbatch(1) and srun(1), "Output environment variables". Holds for torch 2.2 to 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Finding, Fix, Severity, lint

if TYPE_CHECKING:
    from ddpdoctor.check import Around, LaunchScript

AILMENT = Ailment("DDP390", Severity.ERROR)
OF_A_TASK = {"SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"}
RANKS = {"RANK", "LOCAL_RANK"}
GIVEN = re.compile(
    r"(?:\b(?:RANK|LOCAL_RANK|NODE_RANK)=|--(?:node|machine)[-_]rank[= ])[\"']?\$\{?SLURM_(?:PROCID|NODEID|LOCALID)\b"
)
"""What a script that is handed to the tasks in double quotes gives them."""
OWN_SIZE = re.compile(r"-[Nnw]|--(?:nodes|ntasks|nodelist)\b|--ntasks-per|-[Nn]\d")


@lint
def in_launch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for ranks that the batch script expands for the tasks that srun starts."""
    sizes = [launch.count(name) or 1 for name in ("nodes", "ntasks", "ntasks-per-node")]
    own = launch.path.replace("\\", "/").rpartition("/")[2]
    if max(sizes) < 2 or re.search(rf"\$0|BASH_SOURCE|{re.escape(own)}", launch.text):  # noqa: PLR2004 - several
        return
    steps = [
        each
        for each in launch.shell.commands
        if each.words and each.words[0].text == "srun" and not any(OWN_SIZE.match(word.text) for word in each.words)
    ]
    for step in steps:
        is_found = "c10d" in launch.text[step.words[0].begin : step.words[-1].end]
        for before, word in zip(step.words, step.words[1:], strict=False):
            if of_gpus := _of_gpus(launch, word.text, word.reads):
                yield _finding(launch, word.line, of_gpus, word.begin)
                continue
            held = sorted(OF_A_TASK & {*word.reads})
            is_rank = "rank" in f"{before.text if not word.text.startswith('-') else ''} {word.text.partition('=')[0]}"
            is_rank |= bool(GIVEN.search(word.text)) and not word.text.startswith("-")
            if held and is_rank and not is_found:
                yield _finding(launch, word.line, held[0], word.begin)
    started = [each.words[-1].line for each in steps if any("python" in word.text for word in each.words)]
    if started and not project.mentions("CUDA_VISIBLE_DEVICES"):
        yield from _gpus(launch, max(started))
    if not started or any(map(project.mentions, ("SLURM_PROCID", "SLURM_LOCALID"))):
        return
    for setting in launch.settings:
        held = sorted(OF_A_TASK & {*(setting.value.reads if setting.value else ())})
        is_read = setting.command is not None and setting.command.is_certain and setting.line < max(started)
        if setting.name in RANKS and held and is_read:
            yield _finding(launch, setting.line, held[0], setting.begin)


def _gpus(launch: LaunchScript, last: int) -> Iterator[Finding]:
    """Look for the one GPU that all tasks of a node are told to see."""
    for setting in launch.settings:
        is_read = setting.command is not None and setting.command.is_certain and setting.line < last
        held = _of_gpus(launch, f"{setting.name}=", setting.value.reads if setting.value else ())
        if held and is_read:
            yield _finding(launch, setting.line, held, setting.begin)


def _of_gpus(launch: LaunchScript, text: str, reads: Iterable[str]) -> str:
    """Return the number of a task by which a text gives each of several tasks of a node a GPU; empty for any other."""
    tasks, nodes = launch.count("ntasks") or 1, launch.count("nodes") or 1
    if (launch.count("ntasks-per-node") or 1) < 2 and tasks <= nodes:  # noqa: PLR2004 - several
        return ""
    is_of_gpus = re.search(r"(?:^|,)CUDA_VISIBLE_DEVICES=", text) is not None
    return next(iter(sorted({"SLURM_LOCALID", "SLURM_PROCID"} & {*reads})), "") if is_of_gpus else ""


def _finding(launch: LaunchScript, line: int, name: str, begin: int) -> Finding:
    is_of_gpus = "CUDA_VISIBLE_DEVICES" in launch.lines[line - 1]
    return Finding(
        f"{name} is expanded in the batch script, where it is 0: each task that srun starts "
        + ("sees GPU 0 alone" if is_of_gpus else "is told 0"),
        (launch.seen(line, f"${name} in single quotes, which each task expands"),),
        Fix(
            "leave the variable out, and choose the GPU in the script by SLURM_LOCALID; or let each task expand it",
            command=f"srun bash -c 'CUDA_VISIBLE_DEVICES=${name} python train.py'",
        )
        if is_of_gpus
        else Fix(
            "let each task expand it, or leave it to the rendezvous",
            command=f"srun bash -c 'torchrun --node_rank=${name} ...'   # or: --rdzv_backend=c10d",
        ),
        launch.place(line, begin),
    )
