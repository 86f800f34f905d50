"""One host of several, watched: its rank stands, a rank of another host comes later, and in the end all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from helpers import Port, Script

from ddpdoctor.cluster.lines import RANKS

SCRIPT = """
import sys, time
import torch, torch.distributed as dist

def read(path):
    with open(path) as file:
        return file.read()

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    read(sys.argv[1])
for _ in range(60):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.25)  # until the watch has seen that it goes on
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("no_process_left")
def test_ranks_that_stand_are_a_note_and_their_line_is_taken_back(
    script: Script, tmp_path: Path, free_port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing here tells whether the rank of the other host waits; once they go on, the lines of all hosts say so."""
    os.mkfifo(fifo := tmp_path / "fifo")
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, script(SCRIPT), str(fifo)]
    with (
        _started([*command], RANK="1"),
        _started([sys.executable, "-m", "ddpdoctor", "run", "--hang-after", "5", "--", *command], RANK="0") as errors,
    ):
        stands, notes = _until_a_line(errors)
        fifo.write_text("")
        goes_on, _ = _until_a_line(errors)
        end, _ = _until_a_line(errors)

    assert "note DDP720 rank-died-or-stuck: rank 0 standing still in read" in " ".join(notes.split())
    assert [doing for *_, doing in stands["ranks"]] == ["STANDING"]
    assert goes_on["ranks"] == []
    assert end["ended"] == [[0, 0, True]]


@contextmanager
def _started(command: list[str], **environ: str) -> Iterator[IO[str]]:
    """Start a command, yield what it writes to its standard error, and see it end well."""
    given = {**os.environ, "COLUMNS": "1000", **environ}
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr
            assert process.wait() == 0
        finally:
            process.kill()


def _until_a_line(errors: IO[str]) -> tuple[dict[str, Any], str]:
    """Return the next line for who reads the logs of all hosts, and what stood before it."""
    before = ""
    for line in errors:
        if line.startswith(RANKS):
            return json.loads(line.removeprefix(RANKS)), before
        before += line
    raise AssertionError(f"no such line: {before}")
