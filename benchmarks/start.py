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


def timed(name: str, command: list[str]) -> float:
    """Run a command and give its seconds; one that fails is told and run again.

    torch 2.13 now and then ends the hello-world by SIGABRT at the interpreter's exit.
    """
    for _ in range(5):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            return time.perf_counter() - started
        print(f"{name} ended with {done.returncode} and is run again")
    sys.exit(f"{name} fails: {done.stdout.decode()}{done.stderr.decode()}")


def main() -> None:
    """Run the commands in turn and print a line for each, then the two ratios."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(runs + 1):  # the first turn fills the file cache and is not counted
        for name, command in COMMANDS.items():
            taken = timed(name, list(map(str, command)))
            if turn:
                seconds[name].append(taken)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {runs} runs")
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        print(f"{name:18} median {median[name]:6.2f} s   min {min(values):6.2f}   max {max(values):6.2f}")
    print(f"check / torchrun      {median['ddpdoctor check'] / median['torchrun hello']:.2f}")
    print(f"--help / import torch {median['ddpdoctor --help'] / median['import torch']:.2f}")


if __name__ == "__main__":
    main()
