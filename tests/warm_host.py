"""Runs ``ddpdoctor`` on a host again and again, in processes forked from this one, which has imported all.

A line of standard input is a command as JSON, ``{"args": [...], "environ": {...}}``; a line of standard output says how
it ended: ``[status, out, err]``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ddpdoctor.__main__ import main
from ddpdoctor.registry import load_checks


def serve() -> None:
    """Answer until the input ends."""
    load_checks()
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            command = json.loads(line)
            files = [Path(folder) / name for name in ("out", "err")]
            child = os.fork()
            if not child:
                _run(command, files)
            _, status = os.waitpid(child, 0)
            answer = [os.waitstatus_to_exitcode(status), *(each.read_text() for each in files)]
            print(json.dumps(answer), flush=True)  # noqa: T201 - to the test


def _run(command: dict[str, Any], files: list[Path]) -> None:
    for descriptor, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(command["environ"])
    sys.argv = ["ddpdoctor", *command["args"]]
    status = 3
    try:
        main()
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
