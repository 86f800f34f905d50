"""Errors that a training caught: where it went on, none is a cause; where anything says that it ended, each is."""

from __future__ import annotations

import pytest
from helpers import answered

ERROR = """\
Traceback (most recent call last):
  File "/ws/train.py", line 40, in run
    out = model(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB. GPU 0 has a total capacity of 23.65 GiB
"""
GOES_ON = "".join(f"epoch 3 step {step} loss 1.1\n" for step in range(40, 52))
WARNING = "2025-01-01 10:00:00 WARNING eval: once more with half of the batch\n"


def cause(log: str) -> str | None:
    """Return what is named first, if anything failed."""
    answer = answered(log)
    if answer.cause:
        return answer.cause.check.slug
    return answer.unknown.record.error if answer.unknown else None


@pytest.mark.parametrize(
    "caught",
    [
        WARNING + ERROR + GOES_ON,
        "Exception in thread Thread-4 (prefetch):\n" + ERROR + GOES_ON,
        ERROR + "falling back to half of the batch\n" + GOES_ON,
        ERROR + GOES_ON + "Training complete in 3m 2s\n",
        ERROR + GOES_ON * 60,
        ERROR + "Ran 12 tests in 3.120s\n\nOK\n",
        ERROR + "=================== 12 passed, 1 skipped in 3.12s ===================\n",
    ],
)
def test_an_error_that_was_caught_is_no_cause(caught: str) -> None:
    """Somebody warned of it, or it was a thread's, or a fall-back is named, or much, or a good end, follows."""
    assert cause(caught) is None


WRITTEN = """\
Traceback (most recent call last):
  File "<string>", line 3, in <module>
ZeroDivisionError: division by zero
"""


def test_an_error_of_code_that_a_model_has_written_is_no_cause() -> None:
    """A reward runs it as a string, prints what it raised, and the training goes on; where it does not, it is told."""
    assert cause(WRITTEN + "reward: 0.0\n" + GOES_ON) is None
    assert cause(WRITTEN) == "ZeroDivisionError"


@pytest.mark.parametrize(
    "failed",
    [
        ERROR + GOES_ON,  # what Python held back of the rank's own output
        WARNING + ERROR,
        WARNING + ERROR + GOES_ON + "srun: error: gpu03: task 1: Exited with exit code 1\n",
        ERROR + GOES_ON + "Training complete in 3m 2s\nKilled\n",
        WARNING
        + ERROR
        + GOES_ON
        + "E0101 10:00:01.000000 41 api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 42)\n",
        ERROR + "================ 1 failed, 12 passed in 3.12s ================\n",
    ],
)
def test_an_error_of_a_training_that_ended_is_its_cause(failed: str) -> None:
    """Also below a warning, where a launcher, or nothing more, tells of the end."""
    assert cause(failed) == "cuda-oom"


def test_an_error_in_the_data_is_no_cause() -> None:
    """In a sample that is logged beside a step's number, or that a key of the data names; the same words alone are."""
    said = "RuntimeError: NCCL error: unhandled system error"

    assert cause(f'step 3 loss 1.1 sample: "{said}"\n') is None
    assert cause(f"prompt: why do I see {said}?\n") is None
    assert cause(f'print("{said}")\n') is None
    assert cause(f"step 3 loss 1.1 {said}\n") == "nccl-system-error-unspecified"
