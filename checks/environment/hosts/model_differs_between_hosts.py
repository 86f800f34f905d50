"""The model that the training builds is another one on one host.

## What happens

A host has another version of the code, another configuration file, or another package that builds the model. DDP
compares the shapes when it wraps the model, "DDP expects same model across all ranks, but Rank 1 has 4 params, while
rank 0 has inconsistent 6 params", or the ranks wait for each other until the time-out.

## How to be sure

`ddpdoctor check` with `--model` and `--batch` on all hosts builds the model on each and compares names,
shapes and types of all parameters; then each takes a step alone.

## How to mend it

Copy code and configuration anew (`rsync -a --delete ./ HOST:$PWD/`), and install the same packages: `pip freeze` on
both.

## Versions and sources

Holds for all versions of torch. Source: torch/csrc/distributed/c10d/reducer.cpp, `verify_params_across_processes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import LAYOUT, MODEL_STEP, Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Cluster, Jobs, Joint

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
        yield _finding(cluster, odd, usual, "builds another model than the others")
    elif told and len(told) < len(cluster.hosts):
        yield _finding(cluster, told, "a step, as on the other hosts", "takes no step with your model")


def _finding(cluster: Cluster, odd: list[Joint], expected: str, does: str) -> Finding:
    first = cluster.hosts[odd[0].host]
    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
    return Finding(
        f"{first.place}{more} {does}",
        tuple(Evidence(each.problem[:400], expected, cluster.hosts[each.host].place) for each in odd[:8]),
        Fix(
            "copy the code anew, and compare what is installed",
            command=f"rsync -a --delete ./ {first.name}:$PWD/; pip freeze   # on {first.name}, too",
        ),
        Place(host=first.name),
    )
