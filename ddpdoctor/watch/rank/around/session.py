"""Where the ranks of one job on one host meet when nobody has started them: a folder, and a monitor beside them."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.settings import MONITOR_COMMAND

if TYPE_CHECKING:
    from ddpdoctor.watch.settings import Settings

JOB = "DDPDOCTOR_JOB"
MONITOR = "monitor"  # the file that the one rank makes which starts the monitor


def with_monitor(settings: Settings) -> Settings:
    """Return the settings with the session of this job on this host; the first rank to ask starts its monitor."""
    session = Path(tempfile.gettempdir()) / f"ddpdoctor-{os.environ.get(JOB) or job()}"
    session.mkdir(mode=0o700, exist_ok=True)
    if session.stat().st_uid != os.getuid():
        raise PermissionError(f"{session} belongs to another user")
    settings = replace(settings, session=str(session))
    with suppress(FileExistsError):
        os.close(os.open(session / MONITOR, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        settings.export(environ)
        subprocess.Popen(
            [sys.executable, *MONITOR_COMMAND],
            env={**environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the ranks; the monitor then tells what it knows, and ends
        )
    return settings


def job() -> str:
    """Return the name of the job that this rank belongs to: ranks of one host have one parent, the launcher."""
    launched = multiprocessing.parent_process() is not None or any(
        name in os.environ for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    )
    parts: list[int | str] = [os.getuid(), os.getppid() if launched else os.getpid()]
    parts += [os.environ.get(name, "") for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")]
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def launched() -> dict[str, Any]:
    """Return the fields of Started that tell who has started this rank; none where it was started by a rank."""
    if "RANK" not in os.environ or multiprocessing.parent_process() is not None:
        return {}
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    size = os.environ.get("WORLD_SIZE", "")
    launch = " ".join(os.environ.get(name, "-") for name in names)
    return {"launch": launch, "world_size": int(size) if size.isdecimal() else -1}
