"""Errors whose cause stands in the source of the script that failed, where that can be read."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

from helpers import named

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = """
    import deepspeed

    engine, *_ = deepspeed.initialize(model=net, config=config)
    path, client = engine.load_checkpoint("checkpoints")
    start = client.get("step", 0)
    """
OWN = ENGINE.replace("import deepspeed", "import project").replace("deepspeed.initialize", "project.initialize")
RESUMED = """
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    state = {"optim": FSDP.optim_state_dict(model, optimizer)}
    optimizer.load_state_dict(state["optim"])
    optimizer.step()
    """
LOADED = 'optimizer.load_state_dict(state["optim"])'
CONVERTED = RESUMED.replace(
    LOADED, 'optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state["optim"]))'
)
AGAIN = """
    import torch.distributed as dist
    from accelerate import Accelerator

    accelerator = Accelerator()
    dist.init_process_group("gloo")
    """


def failed(folder: Path, source: str, error: str, library: str = "") -> str:
    """Return the log of a script that ends in its last line, and in a line of a library if that is given."""
    path = folder / f"train{len([*folder.iterdir()])}.py"
    path.write_text(dedent(source))
    lines = path.read_text().splitlines()
    inner = f'  File "/opt/venv/site-packages/{library}", line 9, in inner\n    inner()\n' if library else ""
    return (
        f'Traceback (most recent call last):\n  File "{path}", line {len(lines)}, in <module>\n    {lines[-1]}\n'
        f"{inner}{error}\n"
    )


def test_what_an_engine_has_not_found_is_named_where_it_is_read(tmp_path: Path) -> None:
    """None that DeepSpeed's load_checkpoint returned; not what a method of that name of another package did."""
    error = "AttributeError: 'NoneType' object has no attribute 'get'"

    found = named(failed(tmp_path, ENGINE, error))["no-checkpoint-to-resume-from"].finding

    assert "found no checkpoint" in found.message
    assert 'tag="' in found.fix.diff
    assert "no-checkpoint-to-resume-from" not in named(failed(tmp_path, OWN, error))


def test_a_whole_state_of_an_optimizer_is_named_where_it_was_loaded(tmp_path: Path) -> None:
    """By the line that loads what FSDP has gathered; other causes remain where parts were made of it."""
    error = "RuntimeError: The size of tensor a (8) must match the size of tensor b (256) at non-singleton dimension 1"
    slug, library = "optimizer-state-of-other-parameters", "torch/optim/adam.py"

    found = named(failed(tmp_path, RESUMED, error, library))[slug].finding
    other = named(failed(tmp_path, CONVERTED, error, library))[slug].finding

    assert "optim_state_dict_to_load" in found.fix.diff
    assert found.place.line == 5
    assert found.ambiguity is None
    assert other.ambiguity is not None


def test_who_has_made_the_group_is_named(tmp_path: Path) -> None:
    """Where a framework's call stands before the one that failed."""
    error = "ValueError: trying to initialize the default process group twice!"

    log = failed(tmp_path, AGAIN, error, "torch/distributed/distributed_c10d.py")

    assert "Accelerator() has made the group" in named(log)["process-group-initialized-twice"].finding.message
