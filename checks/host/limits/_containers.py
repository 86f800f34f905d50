# ruff: noqa: S108 - the directory is what this is about
"""Containers that a file starts, and what it says of their /dev/shm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.check import LaunchScript, Node

LAUNCHER = re.compile(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\b.*?--nproc[-_]per[-_]node[=\s,\"']+(?!1\b)[\w$]"
    r"|\baccelerate[\s,\"']+launch\b(?!.*--num[-_]processes[=\s]+1\b)|\bdeepspeed\s+(?:--|\S+\.py)",
    re.DOTALL,
)
ROOM = re.compile(r"/dev/shm|shm[-_]size|--ipc|hostIPC|\bipc:|tmpfs")
DOCKERS = {"docker", "nvidia-docker", "podman"}
GPUS = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Bare:
    """A container of several ranks on GPUs with nothing said of its /dev/shm."""

    what: str
    line: int
    expected: str
    mend: str


def bare_containers(launch: LaunchScript) -> Iterator[Bare]:
    """Yield those that a file starts."""
    yield from _run(launch)
    for document in launch.documents:
        yield from _services(document)
        yield from _pods(document)


def _run(launch: LaunchScript) -> Iterator[Bare]:
    for command in launch.shell.commands:
        words = [each for each in command.words if each.text != "sudo"]
        texts = [each.text for each in words]
        if not texts or texts[0] not in DOCKERS or texts[1:2] != ["run"] or ROOM.search(" ".join(texts)):
            continue
        on_gpus = texts[0] == "nvidia-docker" or any(
            re.match(r"--gpus\b|--runtime(?:=nvidia)?$", each) for each in texts
        )
        # A variable in the place of an option can hold --ipc=host.
        is_seen = not any(one.text.startswith("$") and not old.text.startswith("-") for old, one in pairwise(words[1:]))
        if on_gpus and is_seen and LAUNCHER.search(" ".join(texts[2:])):
            yield Bare("docker run", command.line, "--ipc=host, or --shm-size=16g", "+docker run --ipc=host ...")


def _services(document: Node) -> Iterator[Bare]:
    """Look at the services of docker-compose, one by one."""
    services = document.get("services")
    for name, service in services.entries if services is not None else ():
        said = service.written()
        if any(each.is_open for each in service.walk()) or service.get("extends") is not None or ROOM.search(said):
            continue
        if re.search(r"driver: *nvidia|runtime: *nvidia|capabilities:.*gpu", said) and LAUNCHER.search(said):
            yield Bare(f"the service {name}", _line(services, name), "shm_size: 16gb", "+    shm_size: 16gb")


def _line(node: Node | None, name: str) -> int:
    return node.places[name][0] if node is not None else 0


def _pods(document: Node) -> Iterator[Bare]:
    """Look at the documents of Kubernetes that ask for several GPUs of a node and start ranks."""
    nodes = [*document.walk()]
    named = document.get("kind")
    kind = named.text if named is not None else ""
    asked = [
        each
        for node in nodes
        for name, each in node.entries
        if name == GPUS and each.text.isdecimal() and int(each.text) > 1
    ]
    if not asked or any(each.is_open for each in nodes) or not any(each.get("image") is not None for each in nodes):
        return
    said = document.written()
    if not ROOM.search(said) and (kind == "PyTorchJob" or LAUNCHER.search(said)):
        volume = (
            "+volumeMounts: [{name: shm, mountPath: /dev/shm}]\n+volumes: [{name: shm, emptyDir: {medium: Memory}}]"
        )
        yield Bare(f"the {kind or 'pod'}", asked[0].line, "an emptyDir of medium Memory, mounted at /dev/shm", volume)
