"""``ddpdoctor explain LOG`` on the command line: all forms of input and output, and bad input."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import CHECKS

Run = Callable[..., "subprocess.CompletedProcess[str]"]
LOG = """\
[rank0]: step 1
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 12, in main
[rank1]: ValueError: sampler option is mutually exclusive with shuffle
"""
FOUND = "sampler-and-shuffle"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log that shows one cause."""
    path = tmp_path / "train.log"
    path.write_text(LOG)
    return path


def piped(text: bytes, *args: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command with something on its standard input."""
    command = [sys.executable, "-m", "ddpdoctor", "explain", *args]
    return subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)


def test_a_file_is_explained(ddpdoctor: Run, log: Path) -> None:
    """The cause, its rank, the line that proves it with its number, the fix, the page; exit status 1."""
    done = ddpdoctor("explain", str(log))

    assert done.returncode == 1
    said = " ".join(done.stdout.split())  # a long path moves the line's end
    for part in ("first cause: certain, rank 1", FOUND, "train.log:4, rank 1", "/home/u/train.py:12", "fix", "DDP602"):
        assert part in said
    assert done.stderr == ""


def test_a_log_without_a_failure_is_exit_status_0(ddpdoctor: Run, tmp_path: Path) -> None:
    """No cause is named where nothing failed."""
    for text, said in (("step 1\nstep 2\n", "2 lines"), ("step 1\n", "1 line")):
        (tmp_path / "fine.log").write_text(text)

        done = ddpdoctor("explain", str(tmp_path / "fine.log"))

        assert (done.returncode, done.stdout) == (0, f"no failure in {said}\n")


def test_a_folder_as_torchrun_writes_it(ddpdoctor: Run, tmp_path: Path) -> None:
    """The rank comes from the path; compressed files are read; what is no log is left alone."""
    folder = tmp_path / "logs" / "none_x1" / "attempt_0" / "3"
    folder.mkdir(parents=True)
    (folder / "stderr.log.gz").write_bytes(gzip.compress(LOG.replace("[rank1]: ", "").encode()))
    (folder / "model.pt").write_bytes(bytes(1000))

    done = ddpdoctor("explain", str(tmp_path / "logs"), "--format", "json")

    answer = json.loads(done.stdout)
    assert (answer["first"]["slug"], answer["first"]["rank"]) == (FOUND, 3)
    assert answer["sources"] == [str(folder / "stderr.log.gz")]
    assert done.stderr == ""


def test_a_pipe_is_passed_on_and_explained_at_its_end() -> None:
    """What came in goes out unchanged, then the answer."""
    text = b"\x1b[31mred\x1b[0m \xff\r50%\r" + LOG.encode()

    done = piped(text)

    assert done.stdout.startswith(text)
    assert FOUND.encode() in done.stdout[len(text) :]
    assert done.returncode == 1


def test_a_dash_is_standard_input_and_not_passed_on() -> None:
    """The answer alone."""
    assert piped(LOG.encode(), "-").stdout.startswith(b"first cause")


def test_a_pipe_with_json_keeps_standard_output_for_it() -> None:
    """What is passed on goes to standard error."""
    done = piped(LOG.encode(), "--format", "json")

    assert json.loads(done.stdout)["first"]["slug"] == FOUND
    assert done.stderr == LOG.encode()


def test_markdown_is_ready_to_be_pasted(ddpdoctor: Run, log: Path) -> None:
    """Fences around what programs said."""
    done = ddpdoctor("explain", "--format", "markdown", str(log))

    assert done.stdout.startswith("**first cause")
    assert done.stdout.count("```") >= 2
    assert "ddpdoctor explain DDP602" in done.stdout


def test_quiet_is_the_first_cause_alone(ddpdoctor: Run, log: Path, tmp_path: Path) -> None:
    """The finding, without what else the log shows; nothing where nothing failed; the status says the rest."""
    (tmp_path / "fine.log").write_text("step 1\nstep 2\n")
    done, fine = ddpdoctor("explain", "-q", str(log)), ddpdoctor("explain", "-q", str(tmp_path / "fine.log"))

    assert (done.returncode, done.stdout.splitlines()[0][:13]) == (1, "error DDP602 ")
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, "", "")


def test_only_one_rank(ddpdoctor: Run, log: Path) -> None:
    """--rank leaves out what others said."""
    assert ddpdoctor("explain", "--rank", "0", str(log)).returncode == 0
    assert FOUND in ddpdoctor("explain", "--rank", "1", str(log)).stdout


def test_what_cannot_be_read_is_one_line_and_the_rest_is_read(ddpdoctor: Run, log: Path, tmp_path: Path) -> None:
    """Binary, cut-short, missing: each is named, none hides the answer."""
    (tmp_path / "binary.log").write_bytes(os.urandom(5000))
    whole = gzip.compress(LOG.encode() + os.urandom(50_000).hex().encode())
    (tmp_path / "short.log.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty").mkdir()
    names = ["binary.log", "short.log.gz", "empty", "nowhere.log", log.name]

    done = ddpdoctor("explain", *(str(tmp_path / name) for name in names))

    lines = done.stderr.splitlines()
    assert FOUND in done.stdout
    assert done.returncode == 1
    assert len(lines) == 4
    for name in names[:4]:
        assert sum(name in line for line in lines) == 1


@pytest.mark.parametrize("name", ["binary.log", "empty", "empty.log.gz"])
def test_nothing_that_can_be_read_is_exit_status_2(ddpdoctor: Run, tmp_path: Path, name: str) -> None:
    """One clear line, no traceback."""
    (tmp_path / "binary.log").write_bytes(os.urandom(5000))
    (tmp_path / "empty.log.gz").write_bytes(b"\x1f\x8b\x08")
    (tmp_path / "empty").mkdir()

    done = ddpdoctor("explain", str(tmp_path / name))

    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_no_secret_and_no_escape_sequence_is_shown(ddpdoctor: Run, tmp_path: Path) -> None:
    """What a log quotes is harmless to show."""
    secret = "https://bob:hunter2secret@host/x?token=abcdef0123456789"  # noqa: S105 - that is what is hidden
    log = tmp_path / "train.log"
    log.write_text(
        f'Traceback (most recent call last):\n  File "t.py", line 1, in f\nOddError: {secret} \x1b]0;x\x07\x9b2J\n'
    )

    for form in ("text", "json", "markdown"):
        done = ddpdoctor("explain", "--all", "--format", form, str(log))

        assert "OddError" in done.stdout
        assert "hunter2secret" not in done.stdout
        assert "abcdef0123456789" not in done.stdout
        assert not any(ord(char) < 32 and char != "\n" for char in done.stdout)
        assert done.stdout.isascii()


def test_a_log_that_grows_is_followed(log: Path) -> None:
    """It speaks when the cause comes, once, and ends on a signal."""
    text = log.read_text()
    log.write_text("")
    command = [sys.executable, "-m", "ddpdoctor", "explain", "-f", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        time.sleep(1)
        with log.open("a") as file:
            file.write(text)
        assert process.stdout.readline().startswith("first cause")
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        process.wait(20)

    assert FOUND in rest
    assert "first cause" not in rest
    assert process.returncode == 128 + signal.SIGTERM


def test_following_needs_a_file(ddpdoctor: Run) -> None:
    """A pipe is passed on as it comes; there is nothing to follow."""
    assert ddpdoctor("explain", "-f", "-").returncode == 2


def test_a_reader_that_goes_away_is_no_traceback(log: Path) -> None:
    """``ddpdoctor explain | head`` ends quietly."""
    log.write_text(LOG * 20_000)
    command = f"cat {log} | {sys.executable} -m ddpdoctor explain | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)  # noqa: S602

    assert "Traceback" not in done.stderr


def test_no_probe_is_loaded(log: Path) -> None:
    """A laptop without torch explains logs; nor are GPUs or processes looked at, whose libraries take time to load."""
    code = (
        "import sys; sys.modules.update(torch=None, psutil=None, pynvml=None); from ddpdoctor.cli import cli\n"
        f"try: cli(['explain', {str(log)!r}])\nexcept SystemExit as exc: print('exit', exc.code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.endswith("exit 1\n")


def test_several_pages_are_printed_one_after_the_other(ddpdoctor: Run) -> None:
    """By code or slug, each once."""
    pages = [ddpdoctor("explain", name).stdout for name in ("DDP501", "DDP604")]

    assert (
        ddpdoctor("explain", "DDP501", "set-epoch-not-called", "ddp604").stdout
        == "\n\n".join(page.removesuffix("\n") for page in pages) + "\n"
    )


def test_a_word_is_searched_in_slugs_titles_areas_and_pages(ddpdoctor: Run) -> None:
    """The closest first; the rest is counted, or listed with --all."""
    some, everything = ddpdoctor("explain", "hang"), ddpdoctor("explain", "--all", "Hang")
    found = re.findall(r"^(DDP\d+)  (\S+)$", everything.stdout, re.MULTILINE)
    speaking = {check.code for check in CHECKS if re.search(r"(?i)(?<![a-z])hang", f"{check.slug} {check.page}")}

    assert some.returncode == everything.returncode == 0
    assert speaking <= {code for code, _ in found}
    assert "hang" in found[0][1]
    assert re.findall(r"^(DDP\d+)  (\S+)$", some.stdout, re.MULTILINE) == found[:12]
    assert f"... {len(found) - 12} more: ddpdoctor explain --all hang" in some.stdout
    assert some.stderr == ""


def test_several_words_are_searched_together(ddpdoctor: Run) -> None:
    """Each check that is listed has them all."""
    slugs = re.findall(r"^DDP\d+  (\S+)$", ddpdoctor("explain", "--all", "gloo", "port").stdout, re.MULTILINE)
    pages = {check.slug: check.page.lower() for check in CHECKS}

    assert slugs
    assert all("gloo" in pages[slug] and "port" in pages[slug] for slug in slugs)


def test_a_file_that_is_called_as_a_check_is_a_log(ddpdoctor: Run, tmp_path: Path) -> None:
    """What is there goes before what could be meant."""
    (tmp_path / "hang").write_text(LOG)

    assert FOUND in ddpdoctor("explain", "hang", cwd=tmp_path).stdout


def test_list_takes_areas_and_checks(ddpdoctor: Run) -> None:
    """Each once, in the order in which they are named."""
    codes = re.findall(r"^(DDP\d+) ", ddpdoctor("list", "DDP701", "data", "set-epoch-not-called").stdout, re.MULTILINE)

    assert codes == ["DDP701", *(check.code for check in CHECKS if check.area == "data")]
