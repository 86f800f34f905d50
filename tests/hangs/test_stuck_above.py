"""A process above the ranks names their training, whichever of the ranks it has started."""

from __future__ import annotations

import os
import subprocess
import sys

from ddpdoctor.stuck.examine import find

RANK = "import sys, time; print('up', flush=True); time.sleep(60)"


def test_each_launcher_of_a_training_of_two_nodes_on_one_host_names_it() -> None:
    """Two containers, or two torchruns, whose ranks meet at one address: the second one has started ranks as well."""
    at = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29543", "WORLD_SIZE": "2"}
    shells = [
        subprocess.Popen(
            ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", RANK],
            env={**os.environ, **at, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for each in shells:
            assert each.stdout is not None
            assert each.stdout.readline() == "up\n"
        found = [find([each.pid]) for each in shells]
    finally:
        for each in shells:
            os.killpg(each.pid, 9)
            each.communicate()

    assert [[each.identity.rank for each in job.ranks] for job in found] == [[0, 1], [0, 1]]
