"""The script that each rank of a test runs: ``in_rank.py FILE``, where FILE holds the test."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from ddpdoctor.pytest.sent import SentTest, received
from ddpdoctor.watch.rank.script import watched_script

__all__ = ["watched_script"]  # from here, so that the pool imports for all ranks what this file needs


def main(file: str) -> None:
    """Call the test, within a process group if it wants one."""
    import torch.distributed as dist

    test: SentTest = pickle.loads(Path(file).read_bytes())  # noqa: S301 - written by the pytest process
    os.chdir(test.folder)
    function, arguments = received(test)
    if test.backend is not None:
        dist.init_process_group(test.backend)
    function(**arguments)


if __name__ == "__main__":
    main(sys.argv[1])
