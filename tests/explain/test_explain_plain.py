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


def test_the_package_that_raised_an_unknown_error_is_told_below_the_users_line() -> None:
    """Whose layer it is; not where the user's own code raised it."""
    from ddpdoctor.report.answer.data import as_markdown
    from ddpdoctor.report.answer.text import answer_text

    below = '  File "/v/lib/python3.11/site-packages/deepspeed/runtime/engine.py", line 2011, in step\n    x.y()\n'
    own = MISSING.replace("FileNotFoundError: [Errno 2] No such", "ArithmeticError: no such")
    layered = answered(own.replace("ArithmeticError", below + "ArithmeticError"))

    assert "raised    deepspeed, runtime/engine.py:2011, step" in answer_text(layered)
    assert "raised in deepspeed, runtime/engine.py:2011, step" in as_markdown(layered)
    assert "raised " not in answer_text(answered(own))


WORDED = """\
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    accelerator.load_state(folder)
  File "/v/lib/python3.11/site-packages/accelerate/accelerator.py", line 3090, in load_state
    raise ValueError(said)
ValueError: {}
"""


def test_a_file_that_is_not_there_is_told_in_whatever_words() -> None:
    """Of a package, by an exception of its own; not what is no path, or is a library or an address."""
    there = ("Tried to find /ckpt/step_2 but folder does not exist", "'data/shard.json' could not be found")
    not_there = ("Column text not found", "library /lib/libcuda.so not found", "https://h/x.json not found")

    assert {named(WORDED.format(each)) for each in there} == {"file-not-found"}
    assert {named(WORDED.format(each)) for each in not_there} == {"unknown"}


def test_options_that_a_package_refuses_are_told_where_the_package_raises() -> None:
    """The same words of the user's own code are an error of that code."""
    log = WORDED.format("`device_map` is not compatible with `fsdp`")
    own = "".join(line for line in log.splitlines(keepends=True) if "accelerator.py" not in line)

    assert (named(log), named(own)) == ("options-refused-together", "unknown")


def named(log: str) -> str:
    """Return the check that comes first."""
    answer = answered(log)
    return answer.cause.check.slug if answer.cause else "unknown"
