"""A Slurm of its own on a few hosts in network namespaces: one controller, a daemon on each, no user but root."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from namespaces import NAMES, finish

if TYPE_CHECKING:
    from namespaces import Done, Hosts

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "sinfo")
PATIENCE = 30.0
SETTINGS = """\
ClusterName=here
SlurmctldHost=a
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=2
NodeName={nodes} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A cluster that runs."""

    hosts: Hosts

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a shell on a login node: nothing of a launch."""
        kept = self.hosts.environ(0, dict.fromkeys(("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK")))
        return kept | {"SLURM_CONF": str(self.hosts.folder / "slurm.conf")}

    def start(self, *command: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command on the first host."""
        return self.hosts.start(0, *command, environ=self.environ | dict(environ or {}))

    def run(self, *command: str, environ: Mapping[str, str] | None = None) -> Done:
        """Run a command on the first host to its end."""
        return finish(self.start(*command, environ=environ))


def missing_programs() -> str:
    """Return why there is no Slurm here; empty where there is one."""
    absent = [each for each in PROGRAMS if shutil.which(each) is None]
    return f"there is no {absent[0]} (Debian: slurmctld slurmd slurm-client)" if absent else ""


@contextmanager
def slurm(hosts: Hosts) -> Iterator[Slurm]:
    """Start the daemons, and end them."""
    nodes = ",".join(NAMES[: hosts.count])
    (hosts.folder / "slurm.conf").write_text(SETTINGS.format(folder=hosts.folder, nodes=nodes))
    (hosts.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    for each in ("state", *NAMES[: hosts.count]):
        (hosts.folder / each).mkdir()
    made = Slurm(hosts)
    logs = [(hosts.folder / f"daemon.{number}").open("w") for number in range(hosts.count + 1)]
    commands = [("slurmctld", "-D", "-i"), *(("slurmd", "-D", "-N", name) for name in NAMES[: hosts.count])]
    running = [
        hosts.start(max(0, number - 1), *command, environ=made.environ, output=log, apart=number > 0)
        for number, (command, log) in enumerate(zip(commands, logs, strict=True))
    ]
    try:
        _wait_until_idle(made)
        yield made
    finally:
        for process in reversed(running):
            process.kill()  # a node's daemon takes its jobs with it
            process.wait(20)
        for log in logs:
            log.close()


def _wait_until_idle(made: Slurm) -> None:
    ends = time.monotonic() + PATIENCE
    states = ""
    while time.monotonic() < ends:
        states = made.run("sinfo", "-h", "-o", "%T %D").out
        if states.strip() == f"idle {made.hosts.count}":
            return
        time.sleep(0.2)
    said = "\n".join(each.read_text() for each in sorted(Path(made.hosts.folder).glob("daemon.*")))
    raise AssertionError(f"the nodes did not become idle: {states}\n{said}")
