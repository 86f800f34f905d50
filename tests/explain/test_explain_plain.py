"""Errors of any program that checks explain: told in the place of an unknown error, and of nothing else."""

from __future__ import annotations

from helpers import answered

MISSING = """\
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    table = open("classes.txt").read()
FileNotFoundError: [Errno 2] No such file or directory: 'classes.txt'
"""
NO_MEMORY = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/train.py", line 30, in <module>
[rank1]:     loss.backward()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.1 GiB
"""


def test_it_takes_the_place_of_an_unknown_error() -> None:
    """Where nothing else explains the log."""
    answer = answered(MISSING)

    assert answer.unknown is None
    assert answer.cause is not None
    assert answer.cause.check.slug == "file-not-found"


def test_another_cause_comes_first_wherever_it_stands() -> None:
    """A file that was not there is one of many things that programs get over."""
    answer = answered(MISSING + NO_MEMORY)

    assert answer.cause is not None
    assert answer.cause.check.slug == "cuda-oom"
    assert "file-not-found" not in {each.check.slug for each in answer.named}


def test_what_was_handled_is_no_error() -> None:
    """The training went on after the traceback."""
    log = "ERROR cannot read classes\n" + MISSING + "".join(f"INFO step {step} loss 1.0\n" for step in range(30))

    assert answered(log).first is None


def test_an_unknown_error_is_told_with_its_line_and_a_next_step() -> None:
    """What a newcomer can do with it."""
    from ddpdoctor.report.answer.text import answer_text

    text = answer_text(answered(MISSING.replace("FileNotFoundError: [Errno 2] No such", "ArithmeticError: no such")))

    assert 'line      table = open("classes.txt").read()' in text
    assert "next  " in text
