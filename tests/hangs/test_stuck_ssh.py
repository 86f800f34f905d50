"""``ddpdoctor stuck --hosts`` over a real ssh: two hosts in network namespaces, with a daemon and a rank on each."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from namespaces import Done, Hosts, finish, network
from trained_hosts import BEGINS, ended, said

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
HANGS = """
    if step == 20 and rank == 1:
        import queue
        queue.Queue().get()
"""
SERVER = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
CLIENT = """\
Host *
  IdentityFile {folder}/key
  IdentitiesOnly yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile {folder}/known
"""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Make the keys of a server and of who may come, for this test alone."""
    for program in ("ssh", "ssh-keygen"):
        if SSHD is None or shutil.which(program) is None:
            pytest.skip("there is no sshd (Debian: openssh-server openssh-client)")
    for name in ("key", "host"):
        command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
        subprocess.run(command, check=True, timeout=20)
    (tmp_path / "sshd_config").write_text(SERVER.format(folder=tmp_path))
    (tmp_path / "ssh_config").write_text(CLIENT.format(folder=tmp_path))
    (tmp_path / "train.py").write_text(BEGINS + HANGS)
    return tmp_path


def start(hosts: Hosts, folder: Path) -> list[subprocess.Popen[str]]:
    """Start a daemon and a rank on each host, which see the processes of this host alone."""
    daemon = f"mount -t tmpfs t /run && mkdir -m 755 /run/sshd && {SSHD} -f {folder}/sshd_config -E {folder}/sshd.log"
    running = []
    for host in range(hosts.count):
        ranks = {"RANK": str(host), "WORLD_SIZE": str(hosts.count), "LOCAL_RANK": "0", "PYTHONUNBUFFERED": "1"}
        with (folder / f"{host}.log").open("w") as log:
            running.append(
                hosts.start(
                    host, "sh", "-c", f'{daemon} && exec "$@"', "sh", sys.executable, str(folder / "train.py"),
                    environ=hosts.environ(host, {"NNODES": None, "NODE_RANK": None, **ranks}), output=log, apart=True,
                )
            )  # fmt: skip
    return running


def stuck(hosts: Hosts, folder: Path, names: str) -> Done:
    """Look from the first host, as somebody would who has logged in there."""
    via = f"ssh -F {folder}/ssh_config -o BatchMode=yes -o ConnectTimeout=5 {{}}"
    command = (sys.executable, "-m", "ddpdoctor", "stuck", "--hosts", names, "--via", via)
    return finish(hosts.start(0, *command, environ=hosts.environ(0)))


def test_a_hang_over_two_hosts_is_told_over_ssh(keys: Path) -> None:
    """With the lines, which py-spy reads there although a shell without a login finds it nowhere; and who is absent."""
    with network(2) as hosts:
        running = start(hosts, keys)
        with ended(hosts, running):
            assert said([keys / "0.log"], {0: "in training"}, 90), (keys / "0.log").read_text()
            time.sleep(5)  # until nothing moves any more
            both = stuck(hosts, keys, "a,b")
            more = stuck(hosts, keys, "a,b,nowhere")

    words = " ".join(both.out.split())
    assert both.status == 1, both.said
    assert "error DDP720 rank-died-or-stuck: rank 1 standing still at train.py:16" in words
    assert "rank 0 waits for it in backward at train.py:9" in words
    assert "host b" in words
    assert "   # on b" in both.out
    assert "This training hangs." in both.out
    assert "no look on nowhere: ssh: Could not resolve hostname" in more.err
    assert more.status == 1
