"""What people see: the command line in a real pseudo terminal, of several widths and kinds, and in a pipe."""

from __future__ import annotations

import fcntl
import functools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from helpers import CHECKS

from ddpdoctor.cli import COMMANDS, cli

if TYPE_CHECKING:
    from processes import WarmProcesses

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Seen = Callable[..., tuple[int, str]]
LIMIT = 60.0
SPEAKS_OF_TERMINALS = re.compile(
    "NO_COLOR|FORCE_COLOR|COLUMNS|LINES|TERM|TMUX|STY|SSH_CONNECTION|.*(_WINDOW_ID|_VERSION|_SESSION|_SESSION_ID|_PANE)"
)
COLOUR = "\x1b[33m"
LINK = "\x1b]8;;"
ESCAPES = re.compile("\x1b\\[[0-9;]*[mK]|\x1b\\]8;;.*?\x1b\\\\")
MISSPELT = {"MASTER_ADR": "10.0.0.7"}
FINDS = ("check", "--only", "DDP101")
LOG = """\
Traceback (most recent call last):
  File "{path}", line 3, in main
ValueError: sampler option is mutually exclusive with shuffle
"""
WIDTHS = (40, 80)
SCREENS = (
    ("check", "--only", "gpu,DDP101"),
    ("check", "--only", "DDP101,DDP105,DDP106,DDP108", "--verbose"),
    ("explain", "DDP501"),
    ("explain", "DDP106"),
    ("list",),
    ("selftest", "DDP115", "--verbose"),
)


def run_in_terminal(program: Path, columns: int, *args: str, **environ: str) -> tuple[int, str]:
    """Run the command line in a terminal of so many columns; return its status and what the terminal got."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not SPEAKS_OF_TERMINALS.fullmatch(name)}
    with subprocess.Popen(
        [program, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**kept, "TERM": "xterm-256color", **environ},
        start_new_session=True,
    ) as process:
        os.close(slave)
        output = b""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until and select.select([master], [], [], LIMIT)[0]:
            try:
                output += os.read(master, 1 << 16)
            except OSError:  # the last process has closed the terminal
                break
        process.wait(LIMIT)
    os.close(master)
    return process.returncode, output.decode().replace("\r\n", "\n")


@pytest.fixture
def seen(warm: WarmProcesses) -> Seen:
    """Return a function that runs the command line in a terminal of so many columns."""
    warm.import_commands()
    return functools.partial(run_in_terminal, warm.folder / "ddpdoctor")


def lines(output: str) -> list[str]:
    """Return the lines that stay on the screen, without colours and links."""
    return [ESCAPES.sub("", line.rpartition("\r")[2]) for line in output.rstrip("\n").split("\n")]


@pytest.mark.parametrize("screen", SCREENS, ids=" ".join)
def test_every_screen_fits_every_width(seen: Seen, screen: tuple[str, ...]) -> None:
    """No line is wider than the terminal, but for a word that is too long by itself, and what is to be pasted."""
    for width in WIDTHS:
        status, output = seen(width, *screen, **MISSPELT)

        assert status in (0, 1)
        assert_fits(lines(output), width)


def test_a_checkpoint_fits_every_width(seen: Seen, tmp_path: Path) -> None:
    """What it imports wraps; the command to paste does not."""
    import torch

    path = tmp_path / "last.pt"
    net = torch.nn.DataParallel(torch.nn.Linear(4, 2))
    torch.save({"model": net.state_dict(), "kept": {3}, "when": Fraction(1, 2)}, path)

    for width in WIDTHS:
        shown = lines(seen(width, "inspect", str(path))[1])

        assert_fits(shown, width)
        assert any(f"ddpdoctor repair {path} -o {path.with_name('last.bare.pt')}" in line for line in shown)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "monitor"])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_help_fits_every_width(command: str, width: int) -> None:
    """So do the pages of options, which are never wider than usual terminals are."""
    shown = CliRunner(env={"COLUMNS": str(width)}).invoke(cli, [command, "--help"]).output.splitlines()

    assert_fits(shown, width)
    assert max(map(len, shown)) <= 80


def assert_fits(shown: list[str], width: int) -> None:
    """Fail where a line is wider that could have been broken between words."""
    assert shown
    for line in shown:
        is_pasted = line.startswith(" " * 6) and not line.startswith(" " * 13)
        long = any(len(word) > width - 30 for word in line.split())
        assert len(line) <= width or is_pasted or long, (width, line)


def test_no_summary_is_cut_and_the_first_commands_stand_first(seen: Seen) -> None:
    """A newcomer sees check, run, explain, stuck and lint first, each with a whole sentence in one line."""
    _, output = seen(80, "--help")
    commands = [line for line in lines(output.partition("\nCommands:")[2]) if line.startswith("  ")]

    assert [line.split()[0] for line in commands[:5]] == ["check", "run", "explain", "stuck", "lint"]
    assert all(line.endswith(".") and "..." not in line for line in commands)


def test_the_verdict_is_seen_without_scrolling(seen: Seen) -> None:
    """It begins the block at the end, which has room on the smallest screen, below what was found."""
    status, output = seen(80, "check", "--only", "DDP101,model,data,checkpoint", **MISSPELT)
    blocks = "\n".join(lines(output)).strip().split("\n\n")

    assert status == 1
    assert blocks[0].startswith("warning DDP101 misspelt-variable: 'MASTER_ADR' is set")
    assert blocks[-1].splitlines()[0] == "1 warning found."
    assert len(blocks[-1].splitlines()) < 10
    assert "because" not in output


def test_where_nothing_is_wrong_very_little_is_said(seen: Seen) -> None:
    """The verdict, and how much was looked at."""
    status, output = seen(80, "check", "--only", "DDP101")

    assert (status, lines(output)[0]) == (0, "Nothing wrong was found.")
    assert len(lines(output)) == 2


def test_a_terminal_shows_what_is_going_on(seen: Seen) -> None:
    """A line for each check, which is gone in the end; a quiet run has none."""
    _, loud = seen(80, *FINDS)
    _, quiet = seen(80, *FINDS, "-q")

    assert "[1/1] DDP101" in loud
    assert "[1/1]" not in "".join(lines(loud))
    assert quiet == ""


@pytest.mark.parametrize(
    ("screen", "environ", "coloured"),
    [
        (FINDS, {}, True),
        (FINDS, {"NO_COLOR": "1"}, False),
        (FINDS, {"TERM": "dumb"}, False),
        (("list", "environment"), {}, True),
        (("list", "environment"), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (("explain", "DDP101"), {"NO_COLOR": ""}, True),
        (("explain", "DDP101"), {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
    ids=str,
)
def test_colour_on_a_terminal(seen: Seen, screen: tuple[str, ...], environ: dict[str, str], *, coloured: bool) -> None:
    """One rule for all commands; a dumb terminal gets no escape sequence at all."""
    _, output = seen(80, *screen, **MISSPELT, **environ)

    assert (COLOUR in output) is coloured
    assert environ != {"TERM": "dumb"} or "\x1b" not in output


@pytest.mark.parametrize("screen", [FINDS, ("explain", "DDP101"), ("list",), ("run", "--", "true")], ids=" ".join)
def test_a_pipe_gets_no_escape_sequence_unless_it_is_asked_for(ddpdoctor: Run, screen: tuple[str, ...]) -> None:
    """Whatever terminal the environment speaks of; FORCE_COLOR adds colours, and never links."""
    environ = {"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1", "NO_COLOR": "", "FORCE_COLOR": "", **MISSPELT}
    plain = ddpdoctor(*screen, **environ)
    forced = ddpdoctor(*screen, **environ | {"FORCE_COLOR": "1"})

    assert "\x1b" not in plain.stdout + plain.stderr
    assert (COLOUR in forced.stdout) is (screen[0] in ("check", "explain"))
    assert LINK not in forced.stdout


def test_a_file_is_never_coloured(ddpdoctor: Run, tmp_path: Path) -> None:
    """Nor is JSON."""
    report = tmp_path / "report.txt"
    ddpdoctor(*FINDS, "--output", str(report), FORCE_COLOR="1", **MISSPELT)
    data = ddpdoctor(*FINDS, "--format", "json", FORCE_COLOR="1", **MISSPELT)

    assert report.read_text().startswith("warning DDP101")
    assert "\x1b" not in report.read_text() + data.stdout


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"VTE_VERSION": "7600"}, "file://{host}{path}"),
        ({"KITTY_WINDOW_ID": "1"}, "file://{host}{path}#3"),
        ({"WEZTERM_PANE": "0", "NO_COLOR": "1"}, "file://{host}{path}"),
        ({}, None),
        ({"VTE_VERSION": "5000"}, None),
        ({"VTE_VERSION": "7600", "TERM": "dumb"}, None),
        ({"VTE_VERSION": "7600", "TMUX": "/run/tmux,1,0"}, None),
        ({"KITTY_WINDOW_ID": "1", "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, None),
    ],
    ids=str,
)
def test_a_line_of_a_file_can_be_clicked_where_the_terminal_is_known_to_have_links(
    seen: Seen, tmp_path: Path, environ: dict[str, str], address: str | None
) -> None:
    """What is shown is the same; a file that is not there is no link."""
    script, log = tmp_path / "train.py", tmp_path / "train.log"
    script.write_text("\n\n\n")
    log.write_text(LOG.format(path=script))
    _, output = seen(300, "explain", str(log), **environ)
    links = re.findall("\x1b]8;;(.+?)\x1b\\\\(.*?)\x1b]8;;\x1b\\\\", output)

    assert any(f"{script}:3" in line for line in lines(output))
    if address is None:
        assert LINK not in output
    else:
        assert (address.format(host=os.uname().nodename, path=script), f"{script}:3") in links
        script.unlink()
        assert f"{script}:3\x1b" not in seen(300, "explain", str(log), **environ)[1]


def test_a_list_in_a_pipe_has_a_whole_line_for_each_check(ddpdoctor: Run) -> None:
    """So that ``ddpdoctor list | grep`` shows code and title, however narrow the terminal is."""
    shown = ddpdoctor("list", COLUMNS="40").stdout.splitlines()

    for check in CHECKS:
        assert any(line.startswith(check.code) and line.rstrip().endswith(check.title) for line in shown), check.code


def test_headings_of_a_page_are_bold_where_there_is_colour(seen: Seen) -> None:
    """The four sections, as headings, with their text below."""
    coloured, plain = (seen(80, "explain", "DDP501", **environ)[1] for environ in ({}, {"NO_COLOR": "1"}))

    for heading in ("What happens", "How to be sure", "How to mend it", "Versions and sources"):
        assert f"\x1b[1m{heading}\x1b[0m\n\n  " in coloured
        assert f"\n{heading}\n\n  " in plain
    assert "##" not in coloured + plain


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_none(closed: str) -> None:
    """As output to nowhere; the exit status is what it is otherwise."""
    command = ["sh", "-c", f"{sys.executable} -m ddpdoctor list data {closed}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert ("DDP604" in done.stdout) is (">&-" not in closed.replace("2>&-", ""))
