"""Times the mending of a checkpoint's keys next to what people do today, the ways alternating in one run.

Usage: python benchmarks/repair.py [--sizes 2 6] [--runs 3] [--folder FOLDER]

Prints Markdown. Everything it writes lies in one folder of its own, which is gone at the end, after Ctrl-C too.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import psutil

COMMAND = str(Path(sys.executable).parent / "ddpdoctor")
GIGA = 10**9
MEGA = 10**6
TENSORS = 300
KEYS = 200_000
PREFIX = "module."  # what DistributedDataParallel puts in front of every key
TINY = "tiny"  # a checkpoint of one tensor
MARK = "seconds "  # in front of the figure that a child prints, as torch may print warnings around it
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # getrusage's ru_maxrss: bytes there, KiB here

# A 6 GB state dict at once, and the copy of it that safetensors may make.
MEMORY_PER_BYTE = 2.2
# torch's file, safetensors' file, the one written, and one that a repair in place may keep for its undo.
DISK_PER_BYTE = 4


class Measured(NamedTuple):
    """What one child process took."""

    seconds: float
    peak: int


@dataclass(frozen=True)
class Way:
    """One way to get rid of the prefix: a function of this file's CHILDREN, or a command line of its own."""

    name: str
    child: str = ""
    command: tuple[str, ...] = ()
    suffix: str = ".pt"
    in_place: bool = False
    mends: bool = True
    base: str = "load+save"


LOAD_SAVE = {  # what the other ways of the same format are compared with
    ".pt": "torch.load, rename, torch.save",
    ".safetensors": "safetensors load_file, rename, save_file",
}
COPY = "cp"
WAYS = (
    Way(LOAD_SAVE[".pt"], "torch"),
    Way("torch.load(mmap=True), rename, torch.save", "mapped"),
    Way(COPY, "copy", mends=False),
    Way("checkpoint.repair(path, in_place=True)", "in place", in_place=True),
    Way("ddpdoctor repair --in-place, whole process", command=("repair", "SOURCE", "--in-place"), in_place=True),
    Way("checkpoint.repair(path, output)", "output", base=COPY),
    Way(LOAD_SAVE[".safetensors"], "safetensors", suffix=".safetensors"),
    Way("checkpoint.repair(path, in_place=True), safetensors", "in place", suffix=".safetensors", in_place=True),
    Way("checkpoint.repair(path, output), safetensors", "output", suffix=".safetensors", base=COPY),
)
TINY_WAYS = (
    Way(LOAD_SAVE[".pt"], "torch"),
    Way("ddpdoctor inspect", command=("inspect", "SOURCE"), mends=False),
    Way("ddpdoctor repair --in-place", command=("repair", "SOURCE", "--in-place"), in_place=True),
    Way("ddpdoctor repair -o", command=("repair", "SOURCE", "-o", "TARGET")),
)


# ---- What runs in a child: imports first, then the clock. ----


def flush(path: Path) -> None:
    """Wait until a file is on the disk, as a repair does; a time without it is that of the page cache."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def state_dict(count: int, size: float) -> OrderedDict[str, Any]:
    """Return what a model in DistributedDataParallel has for its state: `count` tensors, `size` bytes in all."""
    import torch

    length = max(1, int(size / count / torch.float32.itemsize))
    keys = [f"{PREFIX}layer{number}" for number in range(count)]
    state: OrderedDict[str, Any] = OrderedDict((f"{key}.weight", torch.rand(length)) for key in keys)
    # Module.state_dict() leaves it there, and torch.save writes it: the modules' names stand in it once more.
    state._metadata = OrderedDict((key, {"version": 1}) for key in ["", PREFIX[:-1], *keys])  # type: ignore[attr-defined]  # noqa: SLF001
    return state


def make(source: Path, count: str, size: str) -> None:
    """Write a checkpoint in the format of its suffix."""
    state = state_dict(int(count), float(size))
    if source.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(dict(state), source, metadata={"format": "pt"})
    else:
        import torch

        torch.save(state, source)
    flush(source)


def load_save_torch(source: Path, target: Path, *, mmap: bool = False) -> float:
    """Time torch's own way, its own function for the prefix included."""
    import torch
    from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

    started = time.perf_counter()
    state = torch.load(source, mmap=mmap)
    consume_prefix_in_state_dict_if_present(state, PREFIX)
    torch.save(state, target)
    flush(target)
    return time.perf_counter() - started


def load_save_safetensors(source: Path, target: Path) -> float:
    """Time safetensors' own way."""
    from safetensors.torch import load_file, save_file

    started = time.perf_counter()
    state = {key.removeprefix(PREFIX): value for key, value in load_file(source).items()}
    save_file(state, target, metadata={"format": "pt"})
    flush(target)
    return time.perf_counter() - started


def copy(source: Path, target: Path) -> float:
    """Time the copy alone: no way that writes a second file takes less."""
    started = time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    flush(target)
    return time.perf_counter() - started


def repair(source: Path, target: Path, *, in_place: bool) -> float:
    """Time ddpdoctor's way, which waits for the disk by itself; a small file first, so that all is imported."""
    from ddpdoctor import checkpoint

    checkpoint.repair(source.with_stem(TINY), in_place=True)
    checkpoint.undo(source.with_stem(TINY))
    started = time.perf_counter()
    if in_place:
        checkpoint.repair(source, in_place=True)
    else:
        checkpoint.repair(source, target)
    return time.perf_counter() - started


def check(path: Path, count: str) -> None:
    """Fail unless a mended file has all its keys, without the prefix, and loads by its own library."""
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            keys = list(file.keys())
    else:
        import torch

        keys = list(torch.load(path, mmap=True))
    if sorted(keys) != sorted(f"layer{number}.weight" for number in range(int(count))):
        sys.exit(f"{path.name} has {len(keys)} keys, such as {keys[:3]}: it is not mended")


def undo(path: Path) -> None:
    """Take the repair in place back: the next run starts from the same file."""
    from ddpdoctor import checkpoint

    checkpoint.undo(path)


TIMED: dict[str, Callable[[Path, Path], float]] = {
    "torch": load_save_torch,
    "mapped": partial(load_save_torch, mmap=True),
    "safetensors": load_save_safetensors,
    "copy": copy,
    "in place": partial(repair, in_place=True),
    "output": partial(repair, in_place=False),
}
UNTIMED: dict[str, Callable[..., None]] = {"make": make, "check": check, "undo": undo}


def child(name: str, path: str, *rest: str) -> None:
    """Do what this process was started for."""
    if name in UNTIMED:
        UNTIMED[name](Path(path), *rest)
    else:
        print(f"{MARK}{TIMED[name](Path(path), Path(*rest))}")


# ---- What runs in the parent: it stays small, as a child's peak is at least its parent's. ----


def spawn(command: list[str]) -> tuple[Measured, str]:
    """Run a process to its end, for its wall time and its peak memory; end the program if it fails."""
    started = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            output = process.stdout.read() if process.stdout else ""
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            with suppress(ProcessLookupError):  # Ctrl-C: a `cp` that is left behind would write on
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
    return Measured(seconds, usage.ru_maxrss * RSS_UNIT), output


def in_child(name: str, *arguments: str | Path) -> tuple[Measured, str]:
    """Run a function of this file in a process of its own."""
    return spawn([sys.executable, __file__, "--child", name, *map(str, arguments)])


def read_once(path: Path) -> None:
    """Bring a file into the page cache; what earlier runs wrote is on the disk by then."""
    os.sync()
    buffer = bytearray(MEGA)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def measure(way: Way, source: Path, count: int, *, whole: bool = False) -> Measured:
    """Run one way once from the same file, and check what it made."""
    target = source.with_stem("mended")
    target.unlink(missing_ok=True)
    read_once(source)
    if way.command:
        words = {"SOURCE": str(source), "TARGET": str(target)}
        took, _ = spawn([COMMAND, *(words.get(word, word) for word in way.command)])
    else:
        took, output = in_child(way.child, source, target)
        if not whole:
            figure = next(line for line in output.splitlines() if line.startswith(MARK))
            took = Measured(float(figure.removeprefix(MARK)), took.peak)
    made = source if way.in_place else target
    if way.mends:
        in_child("check", made, str(count))
    if way.in_place:
        restore(source)
    target.unlink(missing_ok=True)
    return took


def restore(source: Path) -> None:
    """Undo a repair in place."""
    in_child("undo", source)
    left = [path.name for path in source.parent.iterdir() if path.suffix not in LOAD_SAVE]
    if left:
        print(f"undo left {', '.join(left)}", file=sys.stderr)


def usable_ways() -> list[Way]:
    """Leave out, and say so, what cannot be run without safetensors."""
    if importlib.util.find_spec("safetensors"):
        return list(WAYS)
    print("safetensors is not installed: its rows are left out.\n")
    return [way for way in WAYS if way.suffix == ".pt"]


def run_size(ways: list[Way], size: float, runs: int, folder: Path) -> dict[str, list[Measured]]:
    """Time every way on files of one size, in turn."""
    sources = {suffix: folder / f"checkpoint{suffix}" for suffix in dict.fromkeys(way.suffix for way in ways)}
    for source in sources.values():
        in_child("make", source, str(TENSORS), str(size * GIGA))
        in_child("make", source.with_stem(TINY), "1", "4")
    whole = {suffix: source.stat().st_size for suffix, source in sources.items()}
    took: dict[str, list[Measured]] = {way.name: [] for way in ways}
    for turn in range(runs):
        for way in ways[:: -1 if turn % 2 else 1]:  # a disk's caches favour some neighbours
            took[way.name].append(measure(way, sources[way.suffix], TENSORS))
            told(f"{size:g} GB, run {turn + 1}: {way.name}: {took[way.name][-1].seconds:.3f} s")
            if sources[way.suffix].stat().st_size != whole[way.suffix]:
                sys.exit(f"{sources[way.suffix].name} has another size after {way.name}")
    for source in sources.values():
        source.unlink()
        source.with_stem(TINY).unlink()
    return took


def told(line: str) -> None:
    """Print how far it is; the table alone goes to the standard output."""
    print(line, file=sys.stderr, flush=True)


def median(measured: list[Measured]) -> float:
    """Return the median of the seconds."""
    return statistics.median(one.seconds for one in measured)


def ratio(way: Way, took: dict[str, list[Measured]]) -> str:
    """Compare a way with what it stands for: a copy for a new file, else loading and saving in that format."""
    base = COPY if way.base == COPY else LOAD_SAVE[way.suffix]
    return f"{median(took[way.name]) / median(took[base]):.3g} x {way.base}"


def seconds_cell(measured: list[Measured]) -> str:
    """Return the median, and the range where there is one."""
    values = [one.seconds for one in measured]
    spread = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
    return f"{statistics.median(values):.3g}{spread}"


def peak_cell(measured: list[Measured]) -> str:
    """Return the highest peak of the runs."""
    return f"{max(one.peak for one in measured) / MEGA:.0f}"


def print_table(ways: list[Way], titles: list[str], results: list[dict[str, list[Measured]]]) -> None:
    """Print a row for each way, and a column of each kind for each title."""
    kinds = ("seconds", "ratio", "peak MB")
    print("| what |", " | ".join(f"{kind}{title}" for kind in kinds for title in titles), "|")
    print("|---" * (1 + len(kinds) * len(titles)) + "|")
    for way in ways:
        cells = [seconds_cell(took[way.name]) for took in results]
        cells += [ratio(way, took) for took in results]
        cells += [peak_cell(took[way.name]) for took in results]
        print("|", " | ".join([way.name, *cells]), "|")
    print()


def print_facts(folder: Path, runs: int) -> None:
    """Print what the figures depend on."""
    memory = psutil.virtual_memory().total / GIGA
    disks = [disk for disk in psutil.disk_partitions(all=True) if folder.is_relative_to(disk.mountpoint)]
    kind = max(disks, key=lambda disk: len(disk.mountpoint)).fstype if disks else "unknown file system"
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "safetensors") if importlib.util.find_spec(name)
    )
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, {memory:.0f} GB memory, {kind}, "
        f"Python {platform.python_version()}, {packages}, {runs} runs, load {os.getloadavg()[0]:.1f} at the start\n"
    )


def print_reading() -> None:
    """Print how the figures were taken."""
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / MEGA
    print(
        f"Sizes are decimal GB, {TENSORS} float32 tensors with the keys `{PREFIX}layerN.weight`. "
        "Seconds: median (range) of the operation, without the imports, each time in a new process; "
        "the command line: the whole process. "
        "The input was read once before each (warm page cache), and every time includes the fsync of what was written. "
        "Ratios to load+save are to that of the same format. "
        "Peak: resident memory of the process, in which the pages of a mapped file count; "
        f"less than the benchmark's own {floor:.0f} MB cannot be seen.\n"
    )


def print_tiny(folder: Path) -> None:
    """Print the table of a checkpoint whose cost is its number of keys, not its bytes."""
    source = folder / "checkpoint.pt"
    in_child("make", source, str(KEYS), "0")
    took: dict[str, list[Measured]] = {}
    for way in TINY_WAYS:
        took[way.name] = [measure(way, source, KEYS, whole=True)]
        told(f"{KEYS} keys: {way.name}: {took[way.name][0].seconds:.2f} s")
    print(f"{KEYS:,} tensors of one number, {source.stat().st_size / MEGA:.0f} MB; whole processes, one run:\n")
    print_table(list(TINY_WAYS), [""], [took])


def require_room(folder: Path, size: float) -> None:
    """Raise where something is missing, before anything is written."""
    wanted = {
        f"disk at {folder}": (DISK_PER_BYTE * size + 1, shutil.disk_usage(folder).free),
        "memory": (MEMORY_PER_BYTE * size + 1, psutil.virtual_memory().available),
    }
    short = [
        f"{n:.1f} GB of {what}, {have / GIGA:.1f} are free" for what, (n, have) in wanted.items() if n * GIGA > have
    ]
    if short:
        sys.exit(f"{size:g} GB need {'; '.join(short)}")


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder, and remove it when the program ends, by a signal too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="ddpdoctor-benchmark-", dir=parent) as name:
        yield Path(name)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=float, nargs="+", default=[2, 6], metavar="GB", help="file sizes (default: 2 6)"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each way (default: 3)")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where to write (default: the current folder)")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run every way at every size and print the tables."""
    options = arguments()
    if options.child:
        child(*options.child)
        return
    require_room(options.folder, max(options.sizes))
    with own_folder(options.folder.resolve()) as folder:
        print_facts(folder, options.runs)
        ways = usable_ways()
        results = [run_size(ways, size, options.runs, folder) for size in options.sizes]
        print_reading()
        print_table(ways, [f", {size:g} GB" for size in options.sizes], results)
        print_tiny(folder)
        print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; all files are removed")
