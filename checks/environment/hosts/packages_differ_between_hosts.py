"""A package that the training imports is missing on one host, or has another version there.

## What happens

Two hosts were installed at different times, or run different containers. Another transformers, timm or accelerate is
other code: the models have other parameters, so that DDP refuses them, or ranks call other collectives and hang;
another datasets or torchvision gives the ranks other batches. An array that numpy 2 has pickled
(`broadcast_object_list`, `gather_object`, a checkpoint) is refused by numpy 1: "No module named 'numpy._core'". Where a
package is missing, the ranks of that host end with ModuleNotFoundError, and those of the others wait.

## How to be sure

`pip freeze` on each host. `ddpdoctor check` on all hosts compares the packages that the script and the modules beside
it import, where the script is known: `ddpdoctor check -- torchrun ... train.py`, `--model`, `--loader`. Packages that
the ranks need not share, and releases that differ in the last number alone, are a note.

## How to mend it

Install the same on all hosts: one container image, or one file of pinned versions.

## Versions and sources

Holds for all versions of torch. Source: numpy 2.0's release notes ("numpy.core is now private").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ddpdoctor.check import NO_VERSION, NOT_INSTALLED, Ailment, Finding, Fix, NotRun, Place, Severity, probe

from ._differ import EACH, Difference, differences

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host

AILMENT = Ailment("DDP128", Severity.WARNING)
SHOWN = 8  # packages
SHARED = frozenset(
    """
    accelerate apex colossalai datasets deepspeed detectron2 dgl diffusers fairscale flash-attn horovod lightning
    lightning-fabric megatron-core mmcv mmdet mmengine monai mosaicml mosaicml-streaming open-clip-torch peft
    pytorch-lightning ray sentence-transformers tensordict timm tokenizers torch-geometric torchaudio torchdata
    torchmetrics torchrec torchtext torchvision transformers trl webdataset xformers
    """.split()
)
"""They make the model, draw the batches, or communicate: the ranks have to run the same code of them."""
BY_MAJOR = frozenset({"numpy"})
"""Of these a minor release changes nothing that ranks hand each other."""


@probe
def between_hosts(cluster: Cluster) -> Iterator[Finding]:
    """Tell what is missing, what the ranks have to share, and the rest as a note: each kind once."""
    if not any(host.packages for host in cluster.hosts):
        raise NotRun("what the training imports is compared where a script is named: -- COMMAND, --model, --loader")
    found = list(differences(cluster.hosts, lambda host: host.packages, lambda name, host: host.packages.get(name)))
    absent = [each for each in found if NOT_INSTALLED in dict(each.values)]
    known = [each for each in found if not {NOT_INSTALLED, NO_VERSION} & {*dict(each.values)}]
    shared = [each for each in known if _has_to_be_shared(each)]
    if absent:
        yield _missing(absent)
    if shared:
        yield _differing(shared, Severity.WARNING)
    if rest := [each for each in known if each not in shared]:
        yield _differing(rest, Severity.NOTE)


def _has_to_be_shared(each: Difference) -> bool:
    """Whether ranks with these versions run other code of what they have to do alike."""
    count = 1 if each.name in BY_MAJOR else 2 if each.name in SHARED else 0
    return len({tuple(value.split(".")[:count]) for value, _ in each.values}) > 1


def _missing(told: Sequence[Difference]) -> Finding:
    names = ", ".join(each.name for each in told[:SHOWN])
    without = list({host.name: host for each in told for host in dict(each.values)[NOT_INSTALLED]}.values())
    return Finding(
        f"{names} {'is' if len(told) == 1 else 'are'} not installed on {_hosts(without)}, and the training imports "
        f"{'it' if len(told) == 1 else 'them'}",
        tuple(proof for each in told[:SHOWN] for proof in each.evidence(": ")),
        Fix("install the same on all hosts", command=_command(told)),
        Place(host=without[0].name),
        severity=Severity.ERROR,
    )


def _differing(told: Sequence[Difference], severity: Severity) -> Finding:
    more = f"; and {len(told) - SHOWN} more" if told[SHOWN:] else ""
    return Finding(
        "; ".join(each.message for each in told[:SHOWN]) + more,
        tuple(proof for each in told[:SHOWN] for proof in each.evidence(" ")),
        Fix("install the same on all hosts", command=_command(told)),
        Place(host=told[0].odd.name),
        severity=severity,
    )


def _command(told: Sequence[Difference]) -> str:
    """Return what installs on each host the version that most hosts have, of two the first one's."""
    wanted: dict[str, list[str]] = {}
    for each in told:
        versions = [value for value, _ in each.values if value not in {NOT_INSTALLED, NO_VERSION}]
        for value, hosts in each.values:
            if versions and value != versions[0] and value != NO_VERSION:
                for host in hosts[:EACH]:
                    wanted.setdefault(host.name, []).append(f"'{each.name}=={versions[0]}'")
    return "\n".join(f"pip install {' '.join(pins)}   # on {name}" for name, pins in list(wanted.items())[:SHOWN])


def _hosts(hosts: Sequence[Host]) -> str:
    return ", ".join(each.place for each in hosts[:EACH]) + (" and more" if hosts[EACH:] else "")
