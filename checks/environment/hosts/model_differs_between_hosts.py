"""The model that the training builds is another one on one host.

## What happens

A host has another version of the code, another configuration file, or another package that builds the model. DDP
compares the shapes when it wraps the model, "DDP expects same model across all ranks, but Rank 1 has 4 params, while
rank 0 has inconsistent 6 params", or the ranks wait for each other until the time-out.

## How to be sure

`ddpdoctor check` with `--model` and `--batch` on all hosts builds the model on each and compares names,
shapes and types of all parameters; then each takes a step alone. It names the first parameters that differ, and the
environment variables that the training's files read and that differ between the hosts.

## How to mend it

Copy code and configuration anew (`rsync -a --delete ./ HOST:$PWD/`), and install the same packages: `pip freeze` on
both.

## Versions and sources

Holds for all versions of torch. Source: torch/csrc/distributed/c10d/reducer.cpp, `verify_params_across_processes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.check import LAYOUT, MODEL_STEP, Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

from ._differ import differences

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Host, Jobs, Joint

AILMENT = Ailment("DDP141", Severity.ERROR)


@probe
def built_on_each(cluster: Cluster, jobs: Jobs) -> Iterator[Finding]:
    """Compare what each host has built, and who could take a step with it, in the job that was run from its pool."""
    del jobs
    told = [each for each in cluster.joint if each.step in (LAYOUT, MODEL_STEP) and each.problem]
    if not cluster.joint:
        raise NotRun("several hosts build the model where --model and --batch name it, and all reach each other")
    layouts: dict[str, list[Joint]] = {}
    for each in told:
        if each.step == LAYOUT:
            layouts.setdefault(each.problem, []).append(each)
    if len(layouts) > 1:
        (usual, _), *others = sorted(layouts.items(), key=lambda each: (-len(each[1]), each[1][0].host))
        odd = [each for _, group in others for each in group]
        yield _of_layouts(cluster, odd, usual)
    elif told and len(told) < len(cluster.hosts):
        yield _finding(cluster, told, "a step, as on the other hosts", "takes no step with your model")


def _finding(cluster: Cluster, odd: list[Joint], expected: str, does: str) -> Finding:
    first = cluster.hosts[odd[0].host]
    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
    return Finding(
        f"{first.place}{more} {does}",
        tuple(
            Evidence(each.problem.partition("\n")[0][:400], expected, cluster.hosts[each.host].place)
            for each in odd[:8]
        ),
        Fix(
            "copy the code anew, and compare what is installed",
            command=f"rsync -a --delete ./ {first.name}:$PWD/; pip freeze   # on {first.name}, too",
        ),
        Place(host=first.name),
    )


def _of_layouts(cluster: Cluster, odd: list[Joint], usual: str) -> Finding:
    """Name the first parameters that differ, and the variables that the training's files read with other values."""
    first = cluster.hosts[odd[0].host]
    head, *listed = usual.splitlines() or [""]
    own_head, *own = odd[0].problem.splitlines() or [""]
    pairs = [pair for pair in zip(own, listed, strict=False) if pair[0] != pair[1]][:SHOWN]
    if not pairs and len(own) != len(listed):
        pairs = [((own[len(listed) :] or ["no more"])[0], (listed[len(own) :] or ["no more"])[0])]
    reads = [each for each in differences(cluster.hosts, lambda host: host.reads, _read) if first.reads]
    named = ", ".join(each.name for each in reads[:SHOWN])
    same_code = len({tuple(sorted(each.code.items())) for each in cluster.hosts}) == 1 and bool(first.code)
    whole = _finding(cluster, odd, head, "builds another model than the others")
    where = f": {pairs[0][0]}, and {pairs[0][1]} on the others" if pairs else ""
    return replace(
        whole,
        message=f"{whole.message}{where}"
        + (f"; its files read {named}, which differ{'s' * (len(reads) == 1)} between the hosts" if reads else ""),
        evidence=(
            Evidence(own_head, head, first.place),
            *(Evidence(seen, expected, first.place) for seen, expected in pairs),
            *(item for each in reads[:SHOWN] for item in each.evidence("=")),
        ),
        fix=Fix(
            f"give {named} the same value on all hosts",
            command=f"env | grep -E '^({'|'.join(each.name for each in reads[:SHOWN])})='   # on each host",
        )
        if reads
        else Fix(
            "the code that was compared is the same: compare what is installed, and configuration files",
            command=f"pip freeze   # here, and on {first.name}",
        )
        if same_code
        else whole.fix,
    )


def _read(name: str, host: Host) -> str | None:
    return host.reads.get(name)


SHOWN = 4  # parameters, or variables
