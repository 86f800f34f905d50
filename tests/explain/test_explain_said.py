# ruff: noqa: E501 - messages stand in one line, as they are printed
"""What the words of an error that no check knows tell by themselves: what to look at next, and what is quoted."""

from __future__ import annotations

import pytest
from helpers import answered, named

from ddpdoctor.logs.unknown.message import more_said, share
from ddpdoctor.logs.unknown.next_steps import doing, met_by, next_step, root_of
from ddpdoctor.report.answer.text import answer_text
from ddpdoctor.report.style import Style

PACKAGE = "/opt/venv/lib/python3.12/site-packages"
RAISED = """\
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    {code}
  File "{package}/lib/{at}.py", line 70, in call
    raise
{error}
"""


def raised(error: str, code: str = "run()", at: str = "core") -> str:
    """Return a log of one traceback, raised by a package below a line of the user's own code."""
    return RAISED.format(code=code, package=PACKAGE, at=at, error=error)


def step(log: str) -> str:
    """Return what is said to do next."""
    told = answered(log).unknown
    assert told is not None
    fix = next_step(told)
    return f"{fix.summary}\n{fix.command}"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("lib.Timeout: The file lock '/scratch/c/x.lock' could not be acquired.", "fuser -v /scratch/c/x.lock"),
        ("RuntimeError: backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "dmesg"),
        ("lib.GatedRepoError: 403 Client Error. (Request ID: Root=1)", "hf auth whoami"),
        ("lib.RestError: 401 Client Error: Unauthorized for url: https://track.example.org/api", "https://track.example.org/api"),
        ("ValueError: tensor is on cuda:0, the plan has it on cuda:1", "set_device"),
        ("KeyError: 'TinyDet is not in the zoo::model registry. See the documentation'", "TinyDet is no name"),
        ("RuntimeError: Unknown model (vit_tiny_patch32)", "vit_tiny_patch32 is no name"),
        ("lib.E: No object named 'Swim' found in 'BACKBONE' registry! Available: Swin, ResNet", "Swin is the nearest"),
        ("ImportError: Please build the extension with: `python setup.py build_ext --inplace`", "python setup.py build_ext --inplace"),
        ("ValueError: You cannot train a frozen model. Please attach adapters first", "lib says itself what it asks for"),
        ("ValueError: Invalid optimizer 'adamww'. Available: adamw, lion", "adamw is the nearest"),
        ("sqlite3.OperationalError: database is locked", "let rank 0 alone write it"),
        ("PermissionError: [WinError 32] The process cannot access the file", "let rank 0 alone write it"),
        ("urllib.error.HTTPError: HTTP Error 429: Too Many Requests", "so many requests"),
        ("urllib.error.HTTPError: HTTP Error 403: Forbidden", "refuses it"),
        ("redis.ConnectionError: Error 111 connecting to features:6379. Connection refused.", "/dev/tcp/features/6379"),
        ("TypeError: Net.forward() missing 1 required positional argument: 'mask'", "def forward"),
    ],
)  # fmt: skip
def test_the_words_tell_what_to_look_at(error: str, words: str) -> None:
    """Whoever raised it: a lock, a refusal, a lost device, a name that is not known, a command."""
    assert words in step(raised(error))


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Please run `pip install x; rm -rf ~` first",
        "RuntimeError: something failed on cuda:0",
        "ValueError: Unknown model state: the weights are gone",
        "RuntimeError: the block is not registered at all",
        "ValueError: Invalid key found: 429 of them",
    ],
)
def test_words_that_tell_less_are_not_read_for_more(error: str) -> None:
    """No command that does more than one thing, no device that is the only one, no sentence for a name."""
    said = step(raised(error))

    assert not any(words in said for words in ("rm -rf", "set_device", "is no name", "itself names", "many requests"))


def test_what_torch_says_is_not_put_into_the_mouth_of_who_called_it() -> None:
    """A package's line that calls torch's C++ has no frame below it."""
    log = raised("RuntimeError: Tensors must have same number of dimensions: got 2 and 3")

    assert "lib says itself" not in step(log.replace("    raise\n", "    x = torch.cat(all)\n"))


def test_a_lost_device_is_not_put_down_to_the_forward() -> None:
    """The backward that met it says nothing of where it was lost."""
    log = raised("RuntimeError: XPU error: DEVICE_LOST").replace("lib/core", "torch/autograd/graph")
    told = answered(log).unknown

    assert told is not None
    assert doing(told) == ""


def test_numbers_that_differ_by_the_count_of_ranks_are_told_so() -> None:
    """Of four ranks each raises it: 64 rows meet 16."""
    one = raised("ValueError: Expected input batch_size (64) to match target batch_size (16).", "loss = f(out, y)")
    log = "".join(f"[rank{rank}]: {line}\n" for rank in range(4) for line in one.splitlines())

    assert "64 is 4 times 16, and 4 ranks run" in step(log)
    assert "times" not in step(log.replace("[rank3]", "[rank2]"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("shape '[4, 128, 32, 64]' is invalid for input of size 262144", (1048576, 262144, 4)),
        ("Expected 768 features, got 192", (768, 192, 4)),
        ("Expected 768 features, got 193", None),
        ("expected 3, got 3", None),
    ],
)
def test_shares_are_whole(text: str, found: tuple[int, int, int] | None) -> None:
    """The larger holds the smaller a whole number of times."""
    assert share(text) == found


class TestQuoted:
    """What is quoted of a message that has several lines."""

    def test_the_lines_below_the_first_are_quoted(self) -> None:
        """The reason often stands there; what is printed by others does not."""
        told = answered(
            raised("lib.BuildError: the build failed\nstderr:\nld: cannot find crt1.o\nstep 4 loss 0.1\nx")
        ).unknown

        assert told is not None
        assert more_said(told.record) == ["stderr:", "ld: cannot find crt1.o"]
        assert "ld: cannot find crt1.o" in answer_text(answered(raised("lib.E: no\nld: cannot find crt1.o")), Style())

    def test_code_of_another_process_is_none_of_it(self) -> None:
        """Where two ranks print in between each other, and nothing tells them apart."""
        told = answered(raised("lib.E: no") + "    x = f(y)\n").unknown

        assert told is not None
        assert more_said(told.record) == []


def test_an_exception_that_was_raised_again_is_not_its_own_reason() -> None:
    """Python quotes the traceback of the child, then raises the same."""
    quoted = f'lib._RemoteTraceback: \n"""\n{raised("ValueError: bad")}"""\n'
    told = answered(
        f"{quoted}\nThe above exception was the direct cause of the following exception:\n\n{raised('ValueError: bad')}"
    ).unknown

    assert told is not None
    assert root_of(told) == ""


def test_one_rank_of_several_is_said_in_words() -> None:
    """Rank 11, of three whose lines the log has, is not the eleventh of three."""
    log = (
        "".join(f"[rank11]: {line}\n" for line in raised("ValueError: bad").splitlines())
        + "[rank0]: loss 3\n[rank4]: loss 3\n"
    )
    told = answered(log).unknown

    assert told is not None
    assert met_by(told) == "rank 11 alone, among the 3 ranks that the log has lines of"


def test_where_a_process_began_says_nothing_of_the_error() -> None:
    """Each child of mp.spawn has _wrap at the top of its traceback."""
    log = (
        raised("ValueError: bad")
        .replace("/w/train.py", f"{PACKAGE}/torch/multiprocessing/spawn.py")
        .replace("<module>", "_wrap")
    )

    assert "pickle" not in step(log)


class TestMemory:
    """Who holds the memory of a GPU, by torch's own words."""

    LINE = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.45 GiB. GPU 5 has a total capacity of 79.11 GiB of which "
        "{free} GiB is free. {who} Of the allocated memory 70.11 GiB is allocated by PyTorch, and 4.90 GiB is reserved by PyTorch "
        "but unallocated."
    )

    @pytest.mark.parametrize(
        ("who", "other"),
        [
            ("Process 4412 has 76.08 GiB memory in use.", None),
            ("Process 4412 has 76.08 GiB memory in use. Process 4500 has 2.50 GiB memory in use.", "2.50 GiB"),
            ("Including non-PyTorch memory, this process has 76.08 GiB memory in use.", None),
            ("Process 9 has 2.50 GiB memory in use. Including non-PyTorch memory, this process has 76.08 GiB memory in use.", "2.50 GiB"),
            ("Process 9 has 40.00 GiB memory in use.", "40.00 GiB"),
        ],
    )  # fmt: skip
    def test_the_rank_itself_is_no_other_process(self, who: str, other: str | None) -> None:
        """In a container it is told by the host's number, as others are."""
        said = named(raised(self.LINE.format(free="3.02", who=who)))["cuda-oom"].finding.message

        assert ("another process" in said) == (other is not None)
        assert other is None or other in said
