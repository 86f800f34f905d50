"""What a loader or a data set really yields in a rank, as digests: bounded in number and time."""

from __future__ import annotations

import ctypes
import hashlib
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ddpdoctor.examine.loader.facts import Contents, Probe
from ddpdoctor.examine.loader.indices import get, length
from ddpdoctor.examine.model.prepared import seed

BATCHES = 256  # that are loaded, and
SAMPLES = 4096
SECONDS = 1.5  # for loading them
PATIENCE = 8.0  # seconds for a batch, or a sample, that does not come
PROBES = 4  # samples of a data set that are fetched
DRAWS = 16  # times that a worker fetches the same sample
FEW = 6  # times after which a sample that is always the same counts as not random
TELLING = 4  # draws, all different, after which equality between workers is no chance
RICH = 3  # different values: fewer are a label, a mask or a constant
KEPT: list[Any] = []  # iterators with workers, which take seconds to end; the end of the rank ends them


class OutOfTimeError(Exception):
    """What was limited took too long."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End the block by OutOfTimeError after so many seconds."""

    def ring(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def leaves(value: Any) -> Iterator[Any]:
    """Yield what a sample or batch consists of: the tensors, arrays, numbers and texts in it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, Mapping):
        value = [value[key] for key in value]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def digests(value: Any) -> tuple[str, ...]:
    """Return a digest of each part; of what cannot be read, that of its type."""
    return tuple(hashlib.blake2b(_bytes(leaf), digest_size=8).hexdigest() for leaf in leaves(value))


def digest(value: Any) -> str:
    """Return one digest of it all."""
    return hashlib.blake2b("".join(digests(value)).encode(), digest_size=8).hexdigest()


def _bytes(leaf: Any) -> bytes:
    import torch

    if isinstance(leaf, torch.Tensor):
        plain = leaf.detach().cpu()
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        plain = plain.resolve_conj().resolve_neg().contiguous()
        # not by numpy(): torch works without numpy, which has no bfloat16 either
        content = ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size()) if plain.numel() else b""
        return repr((plain.dtype, tuple(plain.shape))).encode() + content
    if callable(get(leaf, "tobytes")):  # numpy and PIL
        return bytes(leaf.tobytes())
    if isinstance(leaf, (str, bytes, int, float, complex, bool, type(None))):
        return repr(leaf).encode()
    return type(leaf).__qualname__.encode()  # its repr could hold its address


def rich(value: Any) -> tuple[bool, ...]:
    """Return, for each part, whether it is more than a label."""
    return tuple(len(set(_values(leaf))) >= RICH for leaf in leaves(value))


def _values(leaf: Any) -> list[Any]:
    import torch

    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
        return list(leaf.detach().flatten()[:SAMPLES].tolist())
    return list(leaf.tobytes()[:SAMPLES]) if callable(get(leaf, "tobytes")) else []


@dataclass(frozen=True, slots=True)
class Digesting:
    """A collate_fn that gives, instead of a batch, the worker and the digests of the samples."""

    batched: bool

    def __call__(self, data: Any) -> tuple[int, list[str]]:
        """Digest what a worker fetched."""
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        return 0 if info is None else info.id, [digest(each) for each in (data if self.batched else [data])]


def stream(loader: Any, *, plain: bool) -> Contents:
    """Load an epoch, or its beginning.

    A plain DataLoader digests its samples in its workers, before they are collated; of another loader the
    batches are digested.
    """
    from torch.utils.data import DataLoader

    if isinstance(loader, DataLoader) and loader.num_workers:
        # A spawned worker would have to import the target's file, by a name that is known in this process only.
        loader.multiprocessing_context = "fork"
    if plain:
        loader.collate_fn = Digesting(batched=loader.batch_sampler is not None)
        loader.pin_memory = False
    samples: list[tuple[int, str]] = []
    batches, complete = 0, False
    until = time.monotonic() + SECONDS
    with suppress(OutOfTimeError), at_most(PATIENCE):
        KEPT.append(iter(loader))
        for batch in KEPT[-1]:
            batches += 1
            worker, found = batch if plain else (0, [digest(batch)])
            samples += [(worker, each) for each in found]
            if batches >= BATCHES or len(samples) >= SAMPLES or time.monotonic() > until:
                break
        else:
            complete = True
    return Contents(tuple(samples), batches, complete, whole_batches=not plain)


def drawn(dataset: Any) -> tuple[tuple[str, ...], ...]:
    """Fetch the first sample twice, with no seed in between; empty where that cannot be done."""
    with suppress(Exception), at_most(PATIENCE / 4):
        if length(dataset):
            return digests(dataset[0]), digests(dataset[0])
    return ()


def probes(dataset: Any) -> tuple[tuple[Probe, ...], str]:
    """Fetch some samples twice, after the same seed on all ranks, until one raises; say what it raised."""
    size = length(dataset) or 0
    found: list[Probe] = []
    try:
        with at_most(PATIENCE / 4):
            for index in sorted({(size - 1) * step // (PROBES - 1) for step in range(PROBES)} if size else ()):
                seed(0)
                first = dataset[index]
                known = digests(first), rich(first)
                seed(0)
                found.append(Probe(index, known[0], digests(dataset[index]), known[1]))
    except Exception as exc:  # noqa: BLE001 - the user's data set raises what it likes
        return tuple(found), "" if isinstance(exc, OutOfTimeError) else f"{type(exc).__name__}: {exc}".splitlines()[0]
    return tuple(found), ""


def in_workers(loader: Any) -> tuple[tuple[str, ...], ...]:
    """Fetch the first sample in each of two forked workers until they differ, or it proves not to be random."""
    from torch.utils.data import DataLoader

    context = get(loader, "multiprocessing_context")
    if getattr(loader, "num_workers", 0) < 2 or (context is not None and context.get_start_method() != "fork"):  # noqa: PLR2004
        return ()
    fetched: tuple[list[str], list[str]] = ([], [])
    with suppress(Exception), at_most(PATIENCE / 2):
        twin: Any = DataLoader(
            loader.dataset,
            batch_size=None,
            sampler=[0] * 2 * DRAWS,
            num_workers=2,
            collate_fn=Digesting(batched=False),
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context="fork",
        )
        KEPT.append(iter(twin))
        for worker, found in KEPT[-1]:
            fetched[worker].extend(found)
            if worker == 1 and _decided(*fetched):
                break
        return tuple(fetched[0]), tuple(fetched[1])
    return ()


def _decided(one: list[str], other: list[str]) -> bool:
    return one != other or len(set(one)) >= TELLING or (len(one) >= FEW and len(set(one)) == 1)
