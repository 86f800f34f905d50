"""Exceptions of C++ in a log: which of their lines says what it was; and errors of storage that are none."""

from __future__ import annotations

from helpers import answered, named

STACK = "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x6c (0x7ff0 in /opt/libc10.so)\n"


def test_an_abort_is_told_by_what_it_was_and_not_by_its_stack() -> None:
    """The last line of the stack names nothing."""
    log = (
        "terminate called after throwing an instance of 'c10::Error'\n  what():  The flux of rank 3 is inverted\n"
        f"Exception raised from operator() at /src/flux.cpp:286 (most recent call first):\n{STACK}"
    )

    unknown = answered(log).unknown

    assert unknown is not None
    assert unknown.record.proof().seen == "what(): The flux of rank 3 is inverted"


def test_an_exception_that_ray_logs_of_a_process_is_an_error() -> None:
    """Ray prints the mangled name of its type, and no more words of C++'s own."""
    log = (
        "(RayTrainWorker pid=19045) [2023-11-02 13:17:59,227 E 19045 21937] logging.cc:97: Unhandled exception: "
        "N3c105ErrorE. what(): Collective call returned error\n"
        f"(RayTrainWorker pid=19045) {STACK}"
    )

    unknown = answered(log).unknown

    assert unknown is not None
    assert unknown.record.error == "c10::Error"


def test_a_progress_bar_without_a_terminal_is_not_the_storage() -> None:
    """EIO is what writing to a terminal that was closed ends with, too."""
    log = (
        'Traceback (most recent call last):\n  File "/w/train.py", line 8, in <module>\n    print(loss)\n'
        "OSError: [Errno 5] Input/output error\n"
    )

    finding = named(log)["storage-failed"].finding

    assert "its terminal was closed" in finding.message
    assert "nohup" in finding.fix.command


def test_a_line_about_storage_that_is_tried_again_is_no_failure() -> None:
    """Only an exception ends a training."""
    log = "WARNING: write of /lustre/a.pt failed: [Errno 5] Input/output error, attempt 1 of 3\nstep 900 loss 1.2\n"

    assert not named(log)
