"""Times what a user waits for, the commands alternating in one run, and prints medians and ratios.

Usage: python benchmarks/start.py [RUNS]
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
COMMANDS: dict[str, list[str | Path]] = {
    "torchrun hello": [BIN / "torchrun", "--standalone", "--nproc_per_node=2", HERE / "hello_ddp.py"],
    "ddpdoctor check": [BIN / "ddpdoctor", "check", "--nproc", "2"],
    "import torch": [sys.executable, "-c", "import torch"],
    "ddpdoctor --help": [BIN / "ddpdoctor", "--help"],
}


def main() -> None:
    """Run the commands in turn and print a line for each, then the two ratios."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(runs + 1):  # the first turn fills the file cache and is not counted
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            done = subprocess.run(list(map(str, command)), capture_output=True, check=False)
            if done.returncode:
                sys.exit(f"{name} ended with {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}")
            if turn:
                seconds[name].append(time.perf_counter() - started)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {runs} runs")
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        print(f"{name:18} median {median[name]:6.2f} s   min {min(values):6.2f}   max {max(values):6.2f}")
    print(f"check / torchrun      {median['ddpdoctor check'] / median['torchrun hello']:.2f}")
    print(f"--help / import torch {median['ddpdoctor --help'] / median['import torch']:.2f}")


if __name__ == "__main__":
    main()
