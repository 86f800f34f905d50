"""What is said of an error that no check knows: what to look at on the line that raised it, in the launcher's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers import answered

from ddpdoctor.logs.unknown.next_steps import next_step

if TYPE_CHECKING:
    from ddpdoctor.logs.answer import Unknown

RAISED = """\
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    {code}
{below}{error}
"""


def unknown(code: str, error: str, below: str = "") -> Unknown:
    """Return the error that a log of one traceback ends in, raised at this line of the user's own code."""
    told = answered(RAISED.format(code=code, error=error, below=below)).unknown
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("code", "error", "command"),
    [
        ("assert image.size == mask.size, name", "AssertionError: 7", "print(image.size, mask.size)"),
        ("assert len(samples) > 0", "AssertionError", "print(len(samples))"),
        ("assert torch.allclose(one, other)", "AssertionError", "print(one, other)"),
        ("assert found", "AssertionError", "print(found)"),
        ("assert all(", "AssertionError", "pdb"),
        (
            "self.writer.add_scalar(tag, loss)",
            "AttributeError: 'NoneType' object has no attribute 'add_scalar'",
            "writer",
        ),
        (
            "norm = head.weight.grad.norm()",
            "AttributeError: 'NoneType' object has no attribute 'norm'",
            "if each.requires_grad and each.grad is None",
        ),
        ("for batch in loader:", "TypeError: 'NoneType' object is not iterable", "grep -nE '\\bloader"),
        ("x = cfg.optim.lr", "AttributeError: 'Config' object has no attribute 'optim'", "print(type(cfg)"),
        ("return undefined", "NameError: name 'undefined' is not defined", "grep -nE '\\bundefined\\b' /w/train.py"),
        ("y = batch[3]", "IndexError: list index out of range", "print(len(batch))"),
        ("mean = total / len(loader)", "ZeroDivisionError: division by zero", "print(len(loader))"),
        ("x = torch.cat((one, other))", "ValueError: all shapes must agree", "getattr(one, 'shape', None)"),
        ("image = read(path)", "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO>", "{path!r}"),
        ("post(url)", "requests.exceptions.ConnectionError: http://node1:8000 refused", "http://node1:8000"),
        ("data = file.read()", "OSError: [Errno 5] Could not read block 7", "dmesg"),
        ("post(url)", "aiohttp.ServerDisconnectedError: Server disconnected", "ss -tnp"),
    ],
)
def test_a_family_of_exceptions_says_what_to_look_at(code: str, error: str, command: str) -> None:
    """By the line of the user's own code that raised it."""
    assert command in next_step(unknown(code, error)).command


def test_what_a_package_raises_is_not_asked_of_the_users_line() -> None:
    """An assertion of a package compares what that package has."""
    below = '  File "/v/lib/python3.11/site-packages/peft/mapping.py", line 20, in wrap\n    assert a == b\n'

    assert "pip show peft" in next_step(unknown("assert one == other", "AssertionError: no", below)).command


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("ray/train/_internal/utils.py", "ScalingConfig(num_workers=1)"),
        ("accelerate/commands/launch.py", "accelerate launch --num_processes=1"),
        ("deepspeed/launcher/launch.py", "deepspeed --num_gpus=1"),
        ("lightning/pytorch/trainer/trainer.py", "Trainer(devices=1"),
        ("horovod/runner/launch.py", "horovodrun -np 1"),
        ("torch/multiprocessing/spawn.py", "mp.spawn(..., nprocs=1)"),
        ("torch/distributed/run.py", "torchrun --nproc_per_node=1"),
    ],
)
def test_one_rank_is_started_as_the_launcher_starts_it(file: str, command: str) -> None:
    """As torchrun starts no rank of Ray."""
    below = f'  File "/v/lib/python3.11/site-packages/{file}", line 20, in run\n    f()\n'
    own = '  File "/w/train.py", line 3, in f\n    step()\n'

    assert command in next_step(unknown("main()", "ArithmeticError: odd", below + own)).command


def test_the_command_shows_no_escape_sequence_of_the_log() -> None:
    """A line of the log is part of it."""
    from ddpdoctor.report.answer.text import answer_text

    text = answer_text(answered(RAISED.format(code="assert x == '\x07\x1b[31m'", error="AssertionError", below="")))

    assert "\x07" not in text
    assert "\x1b" not in text


CHAINED = """\
Traceback (most recent call last):
  File "/v/lib/python3.11/site-packages/datasets/json.py", line 160, in read
    table = read_json()
pyarrow.lib.ArrowInvalid: JSON parse error in row 17

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/w/train.py", line 40, in <module>
    data = load_dataset("json")
  File "/v/lib/python3.11/site-packages/datasets/builder.py", line 1855, in prepare
    raise GenerationError("it failed") from error
datasets.GenerationError: it failed
"""


def test_what_an_error_was_raised_from_is_told() -> None:
    """The last one of a chain often says least; what to look at goes by the first."""
    from ddpdoctor.report.answer.text import answer_text

    text = answer_text(answered(CHAINED))

    assert "because   pyarrow.lib.ArrowInvalid: JSON parse error in row 17" in text
    assert "{path!r}" in text
    assert "because" not in answer_text(answered(RAISED.format(code="f()", error="OddError: x", below="")))


def test_an_error_that_points_to_another_gives_way_to_it() -> None:
    """Also where what comes later leaves several causes."""
    log = (
        "Traceback (most recent call last):\n"
        '  File "/v/lib/python3.11/site-packages/ray/_private/manager.py", line 606, in method\n'
        "RuntimeError: The actor with name W failed to import on the worker. This may be because:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/w/workers.py", line 87, in <module>\n'
        "    import somebodys_package\n"
        "ModuleNotFoundError: No module named 'somebodys_package'\n"
    )
    cause = answered(log).cause

    assert cause is not None
    assert cause.check.slug == "import-fails"
    assert answered("\n".join(log.splitlines()[:3]) + "\n").unknown is not None


@pytest.mark.parametrize(
    ("last", "settled"),
    [
        ('  File "/opt/venv/lib/python3.11/site-packages/sklearn/utils/validation.py", line 14, in <module>\n', True),
        ('  File "/w/data.py", line 2, in <module>\n', False),
        ('  File "/usr/lib/python3.11/importlib/__init__.py", line 126, in import_module\n', False),
    ],
    ids=["an installed package", "the project", "by a name that is given"],
)
def test_what_an_installed_package_imports_is_no_part_of_the_project(last: str, *, settled: bool) -> None:
    """Whose line imports decides: what a project's own line imports can be its own, and both causes remain."""
    log = (
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/hydra/main.py", line 94, in decorated_main\n'
        f"    run()\n{last}    import narwhals\n"
        '  File "<frozen importlib._bootstrap>", line 1140, in _find_and_load_unlocked\n'
        "ModuleNotFoundError: No module named 'narwhals'\n"
    )
    cause = answered(log).cause

    assert cause is not None
    assert (cause.finding.ambiguity is None) is settled
    assert ("which sklearn imports" in cause.finding.message) is settled


def test_what_waited_for_the_rank_of_an_unknown_error_followed_from_it() -> None:
    """A time-out of the others, and what a launcher says of any failure, are no causes beside it."""
    log = "".join(
        f"[rank1]: {line}\n" for line in RAISED.format(code="f()", error="OddError: x", below="").splitlines()
    )
    waited = (
        "[rank0]:[E1123 16:02:10.083 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600033 milliseconds "
        "before timing out.\n"
    )
    answer = answered(log + waited)

    assert answer.unknown is not None
    assert answer.followed
    assert not answer.others
