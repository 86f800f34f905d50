"""Random generators that a data set holds: those of which each worker of a loader gets a copy, and their states."""

from __future__ import annotations

import dis
from typing import Any

from ddpdoctor.examine.loader.generators import held, told
from ddpdoctor.examine.loader.worker_seeds import methods, seeds_by_number
from ddpdoctor.watch.rank.data.index_digest import bytes_of
from ddpdoctor.watch.user_frames import file_of

# A method that says one of these may give each worker, or each sample, a state of its own.
RESEEDS = {
    "seed", "manual_seed", "set_state", "setstate", "bit_generator", "spawn", "jumped", "getpid", "get_worker_info",
    "default_rng", "RandomState", "Random", "Generator", "SeedSequence",
}  # fmt: skip


CALLED = ("__call__", "forward", "transform")


def copied(loader: Any) -> tuple[tuple[str, str], ...]:
    """Return the generators that samples are made with, and that nothing seeds anew in the workers; what makes others.

    The data set's own, and those of its transforms, by where they are in it.
    """
    draws = methods(type(loader.dataset)).get("__getitem__")
    if loader.num_workers <= 1 or loader.worker_init_fn is not None or draws is None or _reseeds(loader.dataset):
        return ()
    found = [
        (path, value)
        for path, owner, value in sorted(held(loader.dataset), key=lambda each: each[0])
        if not _reseeds(owner) and _draws_from(owner, path.rpartition(".")[2], own=owner is loader.dataset)
    ]
    return told(found)


def drawers(loader: Any, *, iterable: bool) -> tuple[tuple[str, Any], ...]:
    """Return the generators that a data set holds, or what puts its batches together, where this process reads it.

    Each with the class of the object that has it.
    """
    if iterable or loader.num_workers:
        return ()
    found: dict[int, tuple[str, Any]] = {}
    collate = getattr(loader.collate_fn, "__self__", loader.collate_fn)
    for path, owner, each in (*held(loader.dataset), *held(collate)):
        found.setdefault(id(each), (f"{path.rpartition('.')[2]} of {type(owner).__name__}", each))
    return tuple(found.values())


def _reseeds(owner: Any) -> bool:
    return any(RESEEDS & set(code.co_names) for name, code in methods(type(owner)).items() if name != "__init__")


def _draws_from(owner: Any, attribute: str, *, own: bool) -> bool:
    """Whether a method that makes samples draws from an attribute, and none makes another one."""
    codes = {name: code for name, code in methods(type(owner)).items() if name != "__init__"}
    makes = [codes[name] for name in (("__getitem__",) if own else CALLED) if name in codes]
    stored = {
        each.argval for code in codes.values() for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"
    }
    return attribute not in stored and any(attribute in code.co_names for code in makes)


def seeded_by(loader: Any) -> tuple[str, str, int, str] | None:
    """Return the worker_init_fn that seeds by the worker's number alone: its name, file, line, and numbers it holds."""
    found = seeds_by_number(loader)
    if found is None:
        return None
    code, held_numbers = found
    return code.co_name, file_of(code), code.co_firstlineno, held_numbers


def state_of(generator: Any) -> Any:
    """Return the state of a random generator of torch's, numpy's or Python's; it is read, and stays as it is."""
    if hasattr(generator, "getstate"):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    state = generator.get_state()
    return bytes_of(state) if hasattr(state, "numpy") else state


def seed_of(generator: Any) -> str:
    """Return what a generator of torch's or numpy's was seeded with; empty where that is not known."""
    if hasattr(generator, "initial_seed"):
        return str(generator.initial_seed())
    bits = getattr(generator, "bit_generator", None)
    entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
    return str(entropy) if entropy is not None else ""
