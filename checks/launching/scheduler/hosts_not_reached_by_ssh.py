"""The launcher starts ranks on other hosts by ssh or pdsh, and cannot.

## What happens

`deepspeed --hostfile`, and `accelerate launch` with DeepSpeed's launchers, log in to each host of the hostfile by ssh
and start the ranks there. It wants a login without a password, also to the host itself, and `pdsh` where that is the
launcher: "host=10.0.0.2 was not reachable via ssh", "launcher 'pdsh' not installed". No rank has started yet.

## How to be sure

`ssh -o PasswordAuthentication=no HOST hostname` prints the host's name, for each host of the hostfile, by the user and
within the container that starts the training.

## How to mend it

Put the key of this user into `authorized_keys` of all hosts; or start torchrun on each host yourself, which needs no
ssh. On one host leave the hostfile out.

## Versions and sources

Source: deepspeed/launcher/runner.py, `main`, and multinode_runner.py; DeepSpeed's documentation, "Resource
Configuration (multi-node)".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

AILMENT = Ailment("DDP447", Severity.ERROR)
STARTS = r"deepspeed/launcher/runner\.py|--hostfile\b|torchpack dist-run|horovodrun|mpirun"


@log_pattern(r"Using hostfile at (?P<file>\S+) but host=(?P<host>\S+) was not reachable via ssh")
def of_a_host(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the host that DeepSpeed has tried."""
    host = match["host"]
    yield Finding(
        f"the launcher cannot log in to {host} by ssh without a password; it is in the hostfile {match['file']}",
        (record.proof(match, f"ssh -o PasswordAuthentication=no {host} hostname prints its name"),),
        Fix(
            "let this user's key in there, or start torchrun on each host, which needs no ssh",
            command=f"ssh-copy-id {host} && ssh -o PasswordAuthentication=no {host} hostname",
        ),
        record.place,
    )


@log_pattern(r"^ssh: Could not resolve hostname (?P<host>[\w.-]+): (?P<why>[^\n]{1,80})", context=(STARTS,))
def of_a_name(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """A launcher's ssh does not know a name of its hostfile; where pdsh or git called it, others speak."""
    if log.first(STARTS):
        yield Finding(
            f"the launcher is to log in to {match['host']} by ssh, and this host does not know that name",
            (record.proof(match, f"getent hosts {match['host']} prints an address"),),
            Fix(
                "write addresses, or names that this host knows, into the hostfile; in a container, add the name there",
                command=f"getent hosts {match['host']}\n"
                f"docker run --add-host {match['host']}:10.0.0.2 ...   # its address",
            ),
            record.place,
        )


WITH_SLOTS = r"ssh: Could not resolve hostname (?P<host>[\w.-]+):(?P<slots>\d+):"


NO_DAEMON = r"(?:ORTE|PRTE) was unable to reliably start one or more daemons|An ORTE daemon has unexpectedly failed"


@log_pattern(WITH_SLOTS, context=(NO_DAEMON,))
def of_slots(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Where the lines of Open MPI are lost, ssh's own says what it was given for a name."""
    if not log.first(NO_DAEMON):
        yield _of_slots(record, match, ())


SSH_SAID = (
    r"(?P<said>Host key verification failed|Permission denied \((?:publickey|password|gssapi|keyboard)[^)\n]*\)"
    r"|ssh: connect to host \S+ port \d+: [^\n]{1,80}|(?:bash: )?orted: command not found)"
)
BY_WORD = {
    "Host key": (
        "ssh does not know the key of the other host",
        "ssh-keyscan -H HOST >> ~/.ssh/known_hosts   # each host, also from within the container",
    ),
    "Permission": ("ssh is refused there", "ssh-copy-id HOST   # each host, by this user"),
    "ssh: connect": ("nobody answers ssh there", "sudo service ssh start   # on HOST; or Port in ~/.ssh/config"),
    "": ("Open MPI is not in the PATH there", "mpirun --prefix $(dirname $(dirname $(command -v mpirun))) ..."),
}


@log_pattern(NO_DAEMON, context=(WITH_SLOTS, SSH_SAID))
def of_open_mpi(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read that mpirun could not start its own process on another host, or took slots for part of its name."""
    if asked := log.first(WITH_SLOTS):
        yield _of_slots(asked[0], asked[1], (record.proof(match),))
        return
    if told := log.first(SSH_SAID):
        why, command = next(each for word, each in BY_WORD.items() if told[1]["said"].startswith(word))
        yield Finding(
            f"mpirun could not start its daemon on another host: {why}",
            (told[0].proof(told[1], "ssh HOST orted --version prints a version"), record.proof(match)),
            Fix(
                "mend that; in a job of Slurm srun starts the ranks without ssh",
                command=f"{command}\nsrun --mpi=pmix python train.py   # in place of mpirun, in a job of Slurm",
            ),
            record.place,
        )
        return
    yield Finding(
        "mpirun could not start its daemon on another host: by ssh, or for want of Open MPI there",
        (record.proof(match, "ssh HOST orted --version prints a version, without a password"),),
        Fix(
            "let this user's key in there, write names that this host knows, and install the same Open MPI at one path",
            command="ssh -o PasswordAuthentication=no HOST 'which orted prted; hostname'",
        ),
        record.place,
    )


def _of_slots(record: Record, match: re.Match[str], more: tuple[Evidence, ...]) -> Finding:
    host, slots = match["host"], match["slots"]
    return Finding(
        f"this mpirun takes {host}:{slots} for the name of a host: its Open MPI is too old to read slots there",
        (record.proof(match, f"{host}, with {slots} slots"), *more),
        Fix(
            "use Open MPI 3 or later, or write the slots into a hostfile",
            command=f"which -a mpirun; mpirun --version\necho '{host} slots={slots}' > hosts.txt\n"
            f"mpirun --hostfile hosts.txt -np {slots} python train.py",
        ),
        record.place,
    )


@log_pattern(r"RuntimeError: launcher '(?P<launcher>\w+)' not installed")
def of_the_launcher(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the program that is missing on this host."""
    launcher = match["launcher"]
    yield Finding(
        f"DeepSpeed is to start the other hosts' ranks with {launcher}, which is not installed here",
        (record.proof(match, f"{launcher} in PATH"),),
        Fix(
            f"install {launcher} on the host that starts the training, or start torchrun on each host",
            command=f"sudo apt-get install {launcher}",
        ),
        record.place,
    )


PDSH = r"pdsh@[^\s:]{1,99}: (?P<host>[^\s:]{1,99}): ssh exited with exit code 255"


@log_pattern(
    r"(?P<said>Permission denied \((?:publickey|password|gssapi|keyboard)[^)\n]*\)|Host key verification failed"
    r"|ssh: connect to host \S+ port \d+: [^\n]+|ssh: Could not resolve hostname [^\n]+)",
    context=(PDSH,),
)
def of_pdsh(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Take what ssh says where pdsh reports that ssh itself failed; of a git over ssh it says nothing."""
    if (ended := log.first(PDSH)) is None:
        return
    host = ended[1]["host"]
    port = re.search(r"port (\d+): (?:Connection refused|Connection timed out|No route to host)", match["said"])
    yield Finding(
        f"the launcher cannot log in to {host} by ssh: {match['said'].strip()}",
        (record.proof(match, f"ssh {host} hostname prints its name"), ended[0].proof(ended[1])),
        Fix(
            f"start sshd there, or name its port (a container's is another than {port[1]} often)",
            command=f"ssh -p 2222 {host} hostname   # then deepspeed --ssh_port 2222 ..., or Port in ~/.ssh/config\n"
            f"sudo service ssh start   # on {host}, in its container",
        )
        if port
        else Fix(
            "let this user's key in there (on one host, too: pdsh goes through ssh), or start torchrun on each host",
            command=f"ssh-copy-id {host} && ssh -o PasswordAuthentication=no {host} hostname",
        ),
        record.place,
    )
