"""Which lines one rank alone comes to, in all the spellings of torch and of the frameworks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.hangs._hangs import hang_of
from ddpdoctor.checks.collectives.hangs._kinds import Hang
from ddpdoctor.checks.collectives.hangs.handed._called import told_of
from ddpdoctor.checks.collectives.hangs.source._one_rank import alone, mend
from ddpdoctor.source.reach.ranks import one_rank_only, rank_condition
from ddpdoctor.source.text.lines import called_at
from ddpdoctor.watch.events import Communication, Doing, Position, Site, Stalled
from ddpdoctor.watch.training import Training

TESTS = (
    "accelerator.is_main_process",
    "accelerator.is_local_main_process",
    "trainer.is_global_zero",
    "self.trainer.is_global_zero",
    "fabric.is_global_zero",
    "state.is_world_process_zero",
    "trainer.is_world_process_zero()",
    "args.local_rank in (-1, 0)",
    "args.process_index == 0",
    "trainer.global_rank == 0",
    "not self.global_rank",
    "dist.get_rank() == 0",
    "accelerator.is_main_process and step % 10 == 0",
    "int(os.environ['RANK']) == 0",
    "writer is not None",
    "writer and step % 10 == 0",
    "board",
    "shown.n > 0 and shown.n % 10 == 0",
    "shown.n == 100",
)
ALL = (
    "accelerator.is_main_process or step % 10 == 0",
    "not accelerator.is_main_process",
    "accelerator.num_processes == 1",
    "args.local_rank != -1",
    "trainer.is_last_batch",
    "args.local_rank in (0, 1)",
    "self.is_main_process",  # see START: the file's own method
    "debug",
    "writer is None",
    "given is not None",  # the other ranks are given it
    "shown.n % 10 == 0",  # holds on the ranks that do not show it, too
    "everywhere.n > 0",
)
START = (
    "import os\nimport argparse\nimport torch.distributed as dist\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--local_rank', type=int)\nargs = parser.parse_args()\n"
    "from tqdm import tqdm\nwriter = SummaryWriter() if dist.get_rank() == 0 else None\n"
    "board = None\nif dist.get_rank() == 0:\n    board = SummaryWriter()\n"
    "given = None\nif dist.get_rank() == 0:\n    given = read()\ngiven = share(given)\n"
    "shown = tqdm(total=9, disable=not accelerator.is_main_process)\neverywhere = tqdm(total=9)\n\n"
    "class Mine:\n    @property\n    def is_main_process(self):\n        return other()\n\n"
    "    def run(self, step, debug):\n"
)


@pytest.mark.parametrize("test", [*TESTS, *ALL])
def test_a_condition_lets_one_rank_through_or_is_not_certain(tmp_path: Path, test: str) -> None:
    """What is certain is told in words, and nothing else is."""
    file = tmp_path / "train.py"
    file.write_text(f"{START}        if {test}:\n            do(step)\n        other()\n")
    lines = file.read_text().count("\n")

    assert one_rank_only(str(file), lines) == ""
    assert bool(one_rank_only(str(file), lines - 1)) is (test in TESTS), test


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("def f():\n    if not accelerator.is_main_process:\n        return\n    gather()\n", 4, "is false"),
        ("@rank_zero_only\ndef f():\n    gather()\n", 3, "`@rank_zero_only`"),
        ("@accelerator.on_main_process\ndef f():\n    gather()\n", 3, "`@accelerator.on_main_process`"),
        ("@accelerator.on_process(process_index=1)\ndef f():\n    gather()\n", 3, "`@accelerator.on_process`"),
        ("@torch.no_grad()\ndef f():\n    gather()\n", 3, ""),
        ("if state.is_main_process:\n    pass\nelse:\n    gather()\n", 4, ""),
        ("while trainer.is_global_zero:\n    gather(\n        1,\n    )\n", 3, "under `if trainer.is_global_zero`"),
        ("accelerator.is_main_process and gather(x)\n", 1, "under `if accelerator.is_main_process`"),
        ("import torch.distributed as dist\ndist.get_rank() != 0 or gather(x)\n", 2, "is false"),
        ("import torch.distributed as dist\ny = gather(x) if dist.get_rank() == 0 else None\n", 2, "under `if dist"),
        ("y = gather(x) if dist.get_rank() == 0 else scatter(x)\n", 1, ""),
        ("import torch.distributed as dist\nif dist.get_rank() == 0 and gather(x):\n    pass\n", 2, "under `if dist"),
        ("if step % 10 == 0 and gather(x):\n    pass\n", 1, ""),
        ("", 1, ""),
        (
            "def log(g):\n    meet(g)\n\nif accelerator.is_main_process:\n    w.register_hook(log)\n",
            2,
            "registered under",
        ),
        ("def log(g):\n    meet(g)\n\nw.register_hook(log)\n", 2, ""),
        ("if accelerator.is_main_process:\n    @on(END)\n    def f(g):\n        meet(g)\n", 4, "made under `if acc"),
        (
            "def run():\n    if not state.is_main_process:\n        return\n    def f():\n        meet()\n",
            5,
            "made where",
        ),
        ("if debug:\n    def f(g):\n        meet(g)\n", 3, ""),
        (
            "if accelerator.is_main_process:\n    def f(g):\n        log(g)\nelse:\n    def f(g):\n        meet(g)\n",
            6,
            "",
        ),
        (
            "def log(g):\n    meet(g)\n\nif accelerator.is_main_process:\n    w.register_hook(log)\nlate(log)\n",
            2,
            "",
        ),
        ("def log(g):\n    meet(g)\n\nif accelerator.is_main_process:\n    w.register_hook(log)\nlog(g)\n", 2, ""),
    ],
)
def test_what_else_lets_one_rank_come_counts(tmp_path: Path, text: str, line: int, said: str) -> None:
    """As users write them."""
    file = tmp_path / "train.py"
    file.write_text(text)
    found = one_rank_only(str(file), line)

    assert said in found
    assert bool(found) is bool(said)


def test_a_method_of_a_framework_is_named_as_it_stands_there(tmp_path: Path) -> None:
    """Torch's own functions are not: their names are known."""
    file = tmp_path / "train.py"
    file.write_text("import torch.distributed as dist\nprint(self.accelerator.gather(x).mean())\ndist.barrier()\n")

    assert called_at(str(file), 2, {"gather", "barrier"}) == "self.accelerator.gather"
    assert called_at(str(file), 3, {"gather", "barrier"}) == ""


HANGS = (
    "import torch.distributed as dist\n\ndef report(accelerator, loss):\n    accelerator.gather(loss)\n\ndef main():\n"
    "    if accelerator.is_main_process:\n        report(accelerator, loss)\n    train()\n\nmain()\n"
)


@pytest.mark.parametrize("group", ["", "0", "default_pg", "7"])
def test_a_hang_is_told_by_the_guard_of_a_caller(tmp_path: Path, group: str) -> None:
    """Where the group is that of all ranks, or is not known, as from outside."""
    file = tmp_path / "train.py"
    file.write_text(HANGS)
    event = Stalled(
        pid=0,
        time=0.0,
        ranks=(
            waiting(0, "all_gather", group, *(Site(str(file), line, "") for line in (4, 8, 11))),
            waiting(1, "broadcast", group, *(Site(str(file), line, "") for line in (9, 11))),
        ),
        world_size=2,
        outside=not group,
    )

    found = alone(event)
    assert (hang_of(event, Training()) is Hang.GUARDED) is (group != "7")
    assert (found is not None and found.call == "accelerator.gather") is (group != "7")


@pytest.mark.parametrize("also_there", [False, True])
def test_a_call_that_was_answered_is_told_by_the_guard_of_its_caller(tmp_path: Path, *, also_there: bool) -> None:
    """A rank later they wait in calls that do not fit; not where the other rank has come to that function, too."""
    file = tmp_path / "train.py"
    file.write_text(HANGS)

    def went(rank: int, *lines: tuple[int, str]) -> Position:
        calls = tuple(
            Communication(number, 0.0, "all_gather", "0", "", Site(str(file), line, name))
            for number, (line, name) in enumerate(lines)
        )
        stack = (Site(str(file), 9, "main"), Site(str(file), 11, "<module>"))
        return replace(waiting(rank, "all_gather", "0", *stack), recent=calls)

    ranks = (went(0, (4, "report"), (9, "main")), went(1, (4, "report") if also_there else (9, "main"), (9, "main")))
    found = alone(Stalled(pid=0, time=0.0, ranks=ranks, world_size=2, outside=False))

    assert (found is not None and found.call == "accelerator.gather") is not also_there


def waiting(rank: int, operation: str, group: str, *stack: Site) -> Position:
    """Return a rank that waits."""
    call = Communication(5, 0.0, operation, group, "", stack[0])
    return Position(
        rank=rank,
        pid=rank + 1,
        doing=Doing.WAITING,
        seconds=7.0,
        site=stack[0],
        operation=operation,
        stack=stack,
        recent=(call,),
    )


def test_a_fix_leaves_the_other_terms_of_a_test_where_they_were() -> None:
    """A checkpoint is saved each 100 steps by all ranks, not in each step by all ranks."""
    saved = mend("trainer.save_checkpoint", "under `if trainer.is_global_zero and step % 100 == 0`").diff
    printed = mend("trainer.evaluate", "under `if epoch > 2 and args.process_index == 0`").diff

    assert saved == (
        "-if trainer.is_global_zero and step % 100 == 0:\n-    trainer.save_checkpoint(...)\n"
        "+if step % 100 == 0:\n+    trainer.save_checkpoint(...)"
    )
    assert printed.endswith(
        "+if epoch > 2:\n+    result = trainer.evaluate(...)\n+    if args.process_index == 0:\n+        print(result)"
    )
    assert mend("barrier", "under `if rank == 0`").diff == "-if rank == 0:\n-    barrier(...)\n+barrier(...)"
    assert mend("barrier", "under `if rank == 0 or late`").diff.endswith("\n+barrier(...)"), "no term to keep"


def test_a_checkpoint_of_all_ranks_is_called_by_its_name(tmp_path: Path) -> None:
    """Whatever state dict is among its arguments: that of DDP communicates nothing."""
    path = tmp_path / "save.py"
    path.write_text("import torch.distributed.checkpoint as dcp\ndcp.save({'model': model.state_dict()})\n")
    told = told_of(Site(str(path), 2, "main"), "gather_object", "under `if rank == 0`")

    assert (told.call, told.does) == ("dcp.save(...)", ", in which all ranks take part")


def test_a_library_that_communicates_is_called_by_its_name(tmp_path: Path) -> None:
    """Who reads `metric.compute()` sees no barrier; of several calls on a line it is not known which one does."""
    path = tmp_path / "train.py"
    path.write_text("print(metric.compute().item())\nprint(one.compute(), two.compute())\nsync_barrier()\n")
    guard = "under `if rank == 0`"
    told = told_of(Site(str(path), 1, "main"), "barrier", guard)

    assert (told.call, told.does) == ("metric.compute(...)", ", in which barrier is called")
    assert told.fix.diff.endswith("+result = metric.compute(...)\n+if rank == 0:\n+    print(result)")
    assert told_of(Site(str(path), 2, "main"), "barrier", guard).call == "barrier"
    assert told_of(Site(str(path), 3, "main"), "barrier", guard).call == "barrier"


def test_a_wait_within_a_call_is_told_by_that_call(tmp_path: Path) -> None:
    """Who reads `engine.save_16bit_model()` sees no handle; who waits for one by himself does."""
    path = tmp_path / "export.py"
    path.write_text("engine.save_16bit_model('out')\nwork.wait()\n")
    guard = "under `if rank == 0`"
    told = told_of(Site(str(path), 1, "main"), "Work.wait of all_gather_into_tensor", guard)

    assert (told.call, told.does) == ("engine.save_16bit_model('out')", ", in which all_gather_into_tensor is called")
    assert told.fix.diff.endswith("\n+engine.save_16bit_model('out')")
    assert told_of(Site(str(path), 2, "main"), "Work.wait of all_reduce", guard).call == "Work.wait of all_reduce"


def test_a_loop_whose_loader_communicates_is_called_a_loop(tmp_path: Path) -> None:
    """What the user reads there is a for, and no broadcast."""
    path = tmp_path / "train.py"
    path.write_text("for step, batch in enumerate(loader):\n    use(batch)\nfor x in range(3):\n    pass\n")
    site = Site(str(path), 1, "main")

    assert told_of(site, "broadcast", "under `if rank == 0`").call == "the loop over loader"
    assert told_of(Site(str(path), 3, "main"), "broadcast", "under `if rank == 0`").call == "broadcast"


@pytest.mark.parametrize(
    "test",
    ["args.process_index == 0", "state.is_world_process_zero", "trainer.is_global_zero", "accelerator.is_main_process"],
)
def test_the_frameworks_words_for_rank_0_are_conditions_on_the_rank(tmp_path: Path, test: str) -> None:
    """Also where it is not certain which rank it is."""
    path = tmp_path / "train.py"
    path.write_text(f"if {test} and step > 3:\n    save()\n")

    assert rank_condition(str(path), 2) == f"{test} and step > 3"


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (
            "torch.save(model.state_dict(), 'w.pt')",
            (
                "+whole = model.state_dict()\n if rank == 0:\n-    torch.save(model.state_dict(), 'w.pt')\n"
                "+    torch.save(whole, 'w.pt')"
            ),
        ),
        (
            "state = model.state_dict()",
            "+state = model.state_dict()\n if rank == 0:\n-    state = model.state_dict()",
        ),
        (
            "whole = {name: each.full_tensor() for name, each in model.named_parameters()}",
            (
                "+whole = {name: each.full_tensor() for name, each in model.named_parameters()}\n if rank == 0:\n"
                "-    whole = {name: each.full_tensor() for name, each in model.named_parameters()}"
            ),
        ),
    ],
)
def test_what_gathers_shards_leaves_the_test_of_the_rank_as_it_stands_there(
    tmp_path: Path, line: str, fix: str
) -> None:
    """The fix is of the user's own line, names that a comprehension binds among it."""
    file = tmp_path / "train.py"
    file.write_text(f"if rank == 0:\n    {line}\n")

    assert told_of(Site(str(file), 2, ""), "all_gather", "under `if rank == 0`").fix.diff == fix


def test_a_function_that_one_rank_makes_is_made_on_all() -> None:
    """The call within it stays where it is."""
    fix = mend("evaluator.run", "in validate(), which is made under `if rank == 0`")

    assert fix.diff == "-if rank == 0:\n-    def validate(...):\n+def validate(...):   # on all ranks"
