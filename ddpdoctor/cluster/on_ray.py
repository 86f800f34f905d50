"""``ddpdoctor check`` on each node of a Ray cluster, started by Ray's own scheduling.

Sources: Ray's documentation of ``ray.nodes`` and of ``NodeAffinitySchedulingStrategy``; run with Ray 2.60.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpdoctor.cluster.joint.jobs import free_port
from ddpdoctor.cluster.launch import TOKEN
from ddpdoctor.facets import BadTarget
from ddpdoctor.jobs.rank import end_with_parent

Ended = tuple[int, str, str]
"""The exit status of a command, what it said on standard output and on standard error."""


def check_on_nodes(args: Sequence[str], seconds: float) -> list[tuple[str, Ended]]:
    """Run ``ddpdoctor check`` with these arguments on each node at once, the first of which reports; for so long.

    Raises:
        BadTarget: Ray is not installed, no cluster of several nodes is found, or a node does not answer in time.
    """
    try:
        import ray
    except ImportError:
        raise BadTarget("--ray: the package ray is not installed here: pip install ray") from None
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as exc:
        first = next(iter(str(exc).splitlines()), "")
        raise BadTarget(f"--ray: no Ray cluster answers: {first}; start it, or set RAY_ADDRESS") from None
    try:
        return _on_nodes(ray, args, seconds)
    finally:
        ray.shutdown()


def _on_nodes(ray: Any, args: Sequence[str], seconds: float) -> list[tuple[str, Ended]]:
    nodes = sorted((each for each in ray.nodes() if each["Alive"]), key=lambda each: not _is_head(each))
    if len(nodes) < 2:  # noqa: PLR2004 - several
        raise BadTarget(f"--ray: the cluster has {len(nodes)} node; on one node, leave --ray out")
    master = nodes[0]["NodeManagerAddress"]
    try:
        port = ray.get(_pinned(ray, nodes[0], free_port).remote(), timeout=seconds)
        token = secrets.token_hex(16)
        tasks = [
            _pinned(ray, node, _check).remote(
                list(args),
                {
                    "MASTER_ADDR": master,
                    "MASTER_PORT": str(port),
                    "NNODES": str(len(nodes)),
                    "NODE_RANK": str(number),
                    TOKEN: token,
                },
                str(Path.cwd()),
            )
            for number, node in enumerate(nodes)
        ]
        ended = ray.get(tasks, timeout=seconds)
    except ray.exceptions.RayError as exc:
        first = next(iter(str(exc).splitlines()), "")
        raise BadTarget(f"--ray: a node did not run the check: {type(exc).__name__}: {first}") from None
    return [(node["NodeManagerAddress"], each) for node, each in zip(nodes, ended, strict=True)]


def _is_head(node: dict[str, Any]) -> bool:
    return "node:__internal_head__" in node["Resources"]


def _pinned(ray: Any, node: dict[str, Any], function: Any) -> Any:
    """Return a task that runs on one node, beside whatever has its processors."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(function)


def _check(args: list[str], environ: dict[str, str], folder: str) -> Ended:
    """Run the check, in a task on a node."""
    done = subprocess.run(
        [sys.executable, "-m", "ddpdoctor", "check", *args],
        env=os.environ | environ,
        cwd=folder if Path(folder).is_dir() else None,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=end_with_parent,
    )
    return done.returncode, done.stdout, done.stderr
