"""The training's own files, or its options, are not the same on all hosts.

## What happens

A file was changed on one host and not copied to the others. Ranks that run different code call different collectives,
and hang; or they train different models and nobody is told. So do ranks that are told different things: another number
of epochs in a file of settings, or another option behind the script.

## How to be sure

`sha256sum train.py` on each host. `ddpdoctor check -- COMMAND` on all hosts compares the Python files that the command
names, those in the same folder and below, and the values of files of settings (YAML, JSON) and of the script's options:
numbers and words, not paths, devices or what else a host has of its own.

## How to mend it

Copy the folder anew: `rsync -a --delete ./ HOST:$PWD/`, or put it on a file system that all hosts share.

## Versions and sources

Holds for all versions of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import IMPORTED, Ailment, Finding, Fix, Place, Severity, probe

from ._differ import differences

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host

    from ._differ import Difference


AILMENT = Ailment("DDP104", Severity.ERROR)


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Compare each file; only among hosts that were told of files."""
    for each in differences(cluster.hosts, lambda host: host.code, _value):
        yield Finding(
            each.message,
            each.evidence(": "),
            _of_package(each.name.partition(IMPORTED)[0], each.odd)
            if IMPORTED in each.name
            else Fix(
                "copy the folder anew",
                command=f"rsync -a --delete ./ {each.odd.name}:$PWD/   # on {each.same.name}, in that folder",
            ),
            Place(file=None if IMPORTED in each.name else each.name, host=each.odd.name),
            severity=None,
        )


@probe
def of_settings(cluster: Cluster) -> Iterator[Finding]:
    """Compare what the training is told: only among hosts that have the file, or whose command has options."""
    found = list(differences(cluster.hosts, lambda host: host.settings, _setting))
    by_file: dict[str, list[Difference]] = {}
    for each in found:
        by_file.setdefault(_source(each.name), []).append(each)
    for file, differing in by_file.items():
        first = differing[0]
        yield Finding(
            "; ".join(each.message for each in differing[:SHOWN])
            + (f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""),
            tuple(item for each in differing[:SHOWN] for item in each.evidence(" = ")),
            Fix(
                f"give {file} the same values on all hosts"
                if file
                else "give the script the same options on all hosts",
                command=f"diff {file} <(ssh {first.odd.name} cat $PWD/{file})   # on {first.same.name}" if file else "",
            ),
            Place(file=file or None, host=first.odd.name),
            severity=Severity.NOTE if all("batch" in each.name.lower() for each in differing) else Severity.WARNING,
        )


SHOWN = 4  # settings of a file


def _source(name: str) -> str:
    """Return the file that a setting stands in; empty for an option."""
    return name.partition(": ")[0] if ": " in name else ""


def _setting(name: str, host: Host) -> str | None:
    """Return what a host has of a setting; None where it was told of no such file, or of no options at all."""
    source = _source(name)
    there = any(_source(each) == source for each in host.settings) if source else bool(host.code)
    return host.settings.get(name, "not set") if there else None


def _of_package(name: str, host: Host) -> Fix:
    return Fix(
        f"give all hosts the same {name}: copy its folder anew, or have PYTHONPATH lead to one that all of them share",
        command=f'python -c "import {name}; print({name}.__file__)"   # on each host: the copy that is imported, on '
        f"{host.name} an odd one",
    )


def _value(name: str, host: Host) -> str | None:
    """Return what a host has of a file; None where it was told of no file, or has that package from elsewhere."""
    package, imported, _ = name.partition(IMPORTED)
    if not host.code or (imported and not any(each.startswith(f"{package}{IMPORTED}") for each in host.code)):
        return None
    return host.code.get(name, "missing")
