"""A pod of the training does not reach the API server of Kubernetes.

## What happens

An operator's launcher asks the API server which workers are there before it starts them: `kubectl-delivery` of an
MPIJob, an init container of a PyTorchJob. Where its pod cannot reach the server it ends, its container is started again
and again ("Init:Error"), and the workers wait for a launcher that never comes: "Failed to list *v1.Pod: Get
https://10.43.0.1:443/...: dial tcp 10.43.0.1:443: connect: connection refused".

## How to be sure

`kubectl describe pod LAUNCHER` shows its containers; a sidecar (istio-proxy, linkerd-proxy) among them starts after
the init containers, and until then nothing passes. `kubectl get networkpolicy` shows what is allowed. "forbidden" would
be a right that the service account lacks: that is another fault.

## How to mend it

Leave the sidecar out for the job, by the annotation of its pods; allow the namespace to reach the API server.

## Versions and sources

Holds for Kubernetes 1.20 to 1.34 with the MPI and training operators. Source: Istio documentation, "Application
requirements"; Kubernetes documentation, "Network Policies".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP401", Severity.ERROR)


@log_pattern(
    r"(?:Failed to (?:list|watch) \*?\S+: |[Uu]nable to connect to the server: "
    r"|couldn't get current server API group list: )"
    r"[^\n]{0,300}?dial tcp (?P<server>[\w.:\[\]-]+): (?:connect: |i/o )?"
    r"(?P<why>connection refused|timeout|no route to host)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name the address that does not answer, and what stands in the way."""
    yield Finding(
        f"a pod does not reach the API server of Kubernetes at {match['server']}: {match['why']}",
        (record.proof(match, "the server answers, and the launcher finds its workers"),),
        Fix(
            "leave the sidecar out for the pods of this job, where there is one",
            diff=' template:\n   metadata:\n     annotations:\n+      sidecar.istio.io/inject: "false"',
            command="kubectl describe pod LAUNCHER | grep -A2 -E '^(Init )?Containers:|istio|linkerd'",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "a sidecar (Istio, Linkerd) takes all traffic of the pod, and runs only after the init containers",
                "a network policy, or the network of that node, keeps the pod from the API server",
                "the API server, or kube-proxy on that node, is down",
            ),
            "kubectl describe pod LAUNCHER; kubectl get networkpolicy; kubectl run probe --rm -it --image=busybox -- "
            f"nc -zv -w 5 {' '.join(match['server'].rsplit(':', 1))}",
        ),
    )
