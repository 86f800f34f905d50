"""A job is to be scheduled as a whole by a scheduler that the cluster does not have.

## What happens

Kubeflow's operators ask Volcano, or the coscheduling plug-in, to place all pods of a job together: they make a
PodGroup. Where its kind is unknown to the cluster ("unable to create PodGroup: the server could not find the requested
resource (post podgroups.scheduling.volcano.sh)", "no matches for kind PodGroup") the pods stay Pending without an
event, or are never made.

## How to be sure

`kubectl get crd | grep podgroups; kubectl get pods -n volcano-system`

## How to mend it

Install the scheduler that the operator was told to use, or start the operator without gang scheduling.

## Versions and sources

Holds whatever the torch, for Kubeflow training operator 1.4 to 1.9 and Volcano 1.4 to 1.10; not run here. Source:
kubeflow/trainer#1825; Kubeflow, "Job Scheduling".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP1498", Severity.ERROR)


@log_pattern(
    r"unable to create PodGroup: the server could not find the requested resource"
    r"(?: \(post (?P<kind>[\w.-]{1,80})\))?"
    r"|no matches for kind \\?\"?PodGroup\\?\"? in version \\?\"?(?P<version>[\w./-]{1,80})"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the scheduler by the group of its resource."""
    kind = match["kind"] or match["version"] or ""
    volcano = "volcano" in kind
    yield Finding(
        f"the cluster has no PodGroup{f' ({kind})' if kind else ''}: "
        f"{'Volcano' if volcano else 'the scheduler'}, which is to place all pods of a job together, is not installed",
        (record.proof(match, "kubectl get crd lists the PodGroup"),),
        Fix(
            "install it, or start the operator without gang scheduling",
            command=(
                "kubectl apply -f https://raw.githubusercontent.com/volcano-sh/volcano/master/installer/"
                "volcano-development.yaml\n"
                if volcano
                else ""
            )
            + "kubectl -n kubeflow get deploy training-operator -o yaml | grep -n gang   # --gang-scheduler-name",
        ),
        record.place,
    )
