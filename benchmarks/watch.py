"""Times a training step plain, watched, and with TORCH_DISTRIBUTED_DEBUG=INFO, the three alternating in one run.

Usage: python benchmarks/watch.py [--runs 7] [--steps 400]

Prints Markdown. The training is two ranks of a small model over gloo, with a data loader and a distributed sampler; a
figure is the median over the steps of one run, without the first twenty.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
WAYS = ("plain", "watched", "TORCH_DISTRIBUTED_DEBUG=INFO")


def step_seconds(way: str, steps: int, folder: str) -> float:
    """Run the training once; give rank 0's median time of a step."""
    result = Path(folder) / "seconds"
    command = [str(BIN / "torchrun"), "--nproc_per_node=2", str(HERE / "small_ddp.py"), str(steps), str(result)]
    if way == "watched":
        command = [str(BIN / "ddpdoctor"), "run", "--on-finding", "log", "--", *command]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if way == WAYS[2]:
        environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
    subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return float(json.loads(result.read_text()))


def main() -> None:
    """Alternate the ways, and print the medians with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.runs):
            for way in WAYS[:: -1 if turn % 2 else 1]:
                took[way].append(step_seconds(way, options.steps, folder))
                print(f"run {turn + 1}: {way}: {took[way][-1] * 1e3:.3f} ms", file=sys.stderr, flush=True)
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch')}, "
        f"{options.runs} runs of {options.steps} steps, load {load:.1f} at the start, "
        f"{os.getloadavg()[0]:.1f} at the end\n"
    )
    print("| step of a small DDP model, 2 ranks, gloo | ms, median of runs (range) | ratio to plain, median of pairs |")
    print("|---|---|---|")
    for way in WAYS:
        values = [value * 1e3 for value in took[way]]
        ratio = statistics.median(ours / plain for ours, plain in zip(took[way], took["plain"], strict=True))
        print(f"| {way} | {statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f}) | {ratio:.3f} |")


if __name__ == "__main__":
    main()
