"""How often srun, mpirun or the platform of a job start what stands behind them."""

from __future__ import annotations

import itertools
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.headers import SHORT
from ddpdoctor.source.launching.launchers import RUNNERS, scheduler_options
from ddpdoctor.source.launching.platforms import Tasks, by_platform

if TYPE_CHECKING:
    from ddpdoctor.source.launching.launch_script import LaunchScript
    from ddpdoctor.source.launching.launchers import Launch
    from ddpdoctor.source.launching.shell_words import Word

OTHERWISE = {"nodelist", "w", "ntasks-per-gpu", "relative", "r", "multi-prog"}
"""Options by which srun starts its tasks in another way."""
SIZES = ("nodes", "ntasks", "ntasks-per-node")
OF_SLURM = ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS", "SLURM_NNODES")
NODES = {f"${name}" for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")}
NODES |= {f"${{{name[1:]}}}" for name in NODES}
"""How a script says the number of the job's nodes."""


def tasks_of(script: LaunchScript, launch: Launch) -> Tasks | None:
    """Return how often a launcher is started; None where that is not certain."""
    if launch.scheduler == "mpirun":
        return _of_mpirun(script, launch)
    own = tuple(itertools.takewhile(lambda word: word.text.rpartition("/")[2] not in RUNNERS, launch.before))
    if launch.scheduler == "srun":
        return of_srun(script, own)
    return by_platform(script, launch)


def _of_mpirun(script: LaunchScript, launch: Launch) -> Tasks | None:
    options = scheduler_options(launch.before)
    if any(":" in word.text and not word.text.startswith("-") for word in launch.before[1:]) and "n" in options:
        return None  # mpirun -n 1 a : -n 1 b
    word = next((options[name] for name in ("np", "n", "c") if options.get(name)), None)
    total = script.number(word)
    return Tasks(total) if total is not None else None


def of_srun(script: LaunchScript, before: tuple[Word, ...]) -> Tasks | None:
    """Return how often srun starts a command, by the words before it and the headers of the batch script."""
    if _has_unknown(before) or any(script.is_set(name) for name in OF_SLURM):
        return None
    options = {SHORT.get(name, name): word for name, word in scheduler_options(before).items()}
    own: dict[str, int | None] = {name: _number(script, options[name]) for name in SIZES if name in options}
    if options.keys() & OTHERWISE or None in own.values():
        return None
    if own.get("ntasks") is not None:
        return Tasks(own["ntasks"])
    if "ntasks-per-node" not in own and (header := script.header("ntasks")) is not None:
        total = script.count("ntasks") if "nodes" not in own else None
        return Tasks(total, None, header) if total is not None else None
    return _by_node(script, own)


def _by_node(script: LaunchScript, own: dict[str, int | None]) -> Tasks | None:
    """Return the tasks where no number of all is given: those of each node, one if nothing is said of them."""
    nodes = own.get("nodes", script.count("nodes"))
    each = own.get("ntasks-per-node", script.count("ntasks-per-node"))
    if each is not None:
        header = None if "ntasks-per-node" in own else script.header("ntasks-per-node")
        return Tasks(nodes * each if nodes else None, each, header)
    is_plain = script.headers and script.header("ntasks-per-gpu") is None
    return Tasks(own["nodes"], 1) if own.get("nodes") and is_plain else None


def _number(script: LaunchScript, word: Word | None) -> int | None:
    """Return the number that an option of srun is; the job's own number of nodes is that of its header."""
    if word is not None and script.held(word).text in NODES:
        return script.count("nodes")
    return script.number(word)


def _has_unknown(before: tuple[Word, ...]) -> bool:
    """Whether a word that the shell puts in can hold options: one in no option's place."""
    options = [each for each in before[1:] if each.is_open and not each.text.startswith("-")]
    values = [new for old, new in pairwise(before) if old.text.startswith("-") and "=" not in old.text]
    return any(word not in values for word in options)
