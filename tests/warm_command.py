"""The command line in processes forked from this one, which has imported all of it, and no torch.

``python warm_command.py SOCKET`` serves, as ``warm.py`` does. A process runs ``python -m ddpdoctor ARG...``; the fork
server of its jobs starts warm where the program ``python`` beside the socket does.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import runpy
import signal
import sys
from pathlib import Path

from warm import become, serve


def import_commands() -> None:
    """Import every command and every check, and the instruments behind them."""
    from ddpdoctor import cli
    from ddpdoctor.registry import load_checks

    for each in pkgutil.iter_modules(cli.__path__):
        importlib.import_module(f"ddpdoctor.cli.{each.name}")
    load_checks()
    assert "torch" not in sys.modules


if __name__ == "__main__":
    request = serve(socket := sys.argv[1], import_commands)
    sys.argv[1:] = become(request)
    sys.path[0] = os.getcwd()  # noqa: PTH109 - what -m puts there
    sys.executable = str(Path(socket).with_name("python"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runpy.run_module("ddpdoctor", run_name="__main__", alter_sys=True)
