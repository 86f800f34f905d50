"""Small collectives that a script makes in each step beside its training: what is said of them, and what is better."""

from __future__ import annotations

import linecache
import re
import statistics
from collections.abc import Iterator, Sequence

from ddpdoctor.check import CallsTimed, Evidence, Finding, Fix, Place

from .._steps import promise
from ..source._step_body import seldom
from ._calls import LOGGED, Cost

BARRIER = "barrier"
SHOWN = 4  # ranks, or lines
LOG = re.compile(r"\bself\.log(_dict)?\(.*\bsync_dist ?= ?True")
NO_BARRIER = (
    "leave the barrier out, or call it only where one rank reads what another has just written: the ranks meet in each "
    "backward anyway"
)
BESIDE = "leave the barrier out: the collective beside it waits for all ranks anyway; "


def of_collectives(
    costs: Sequence[Cost], told: dict[int, CallsTimed], took: list[float], least: float
) -> Iterator[Finding]:
    """Tell of collectives that take so many seconds of a step: those of a function with their barriers, once."""
    logged = [each for each in costs if each.what == LOGGED]
    if sum(each.seconds for each in logged) >= least:
        yield _of_logs(logged, told, took)
    by_function: dict[tuple[str, str], list[Cost]] = {}
    for each in costs:
        if each.what != LOGGED:
            by_function.setdefault((each.most.file, each.most.function), []).append(each)
    for together in by_function.values():
        if len({each.what for each in together}) > 1 and any(each.what == BARRIER for each in together):
            if sum(each.seconds for each in together) >= least:
                yield _of_function(together, told, took)
            continue
        for each in together:
            if each.seconds >= least:
                yield _of_line(each, told, took)


def _often(cost: Cost, told: dict[int, CallsTimed]) -> float:
    return cost.most.times / max(1, next(iter(told.values())).steps)


def _takes(costs: Sequence[Cost], took: list[float]) -> str:
    """Return what calls take of a step; where ranks wait for cores, no more than that they wait for each other."""
    seconds, total = sum(each.seconds for each in costs), statistics.median(took)
    if any(each.counted for each in costs):
        return "in each step, and in each of them all ranks wait for the last"
    all_of_them = " together" if len(costs) > 1 else ""
    return f"{1e3 * seconds:.1f} ms of each step of {1e3 * total:.1f} ms{all_of_them}: {seconds / total:.0%}"


def _then(costs: Sequence[Cost], told: dict[int, CallsTimed], took: list[float]) -> str:
    if any(each.counted for each in costs):
        return f"a step has {sum(_often(each, told) for each in costs):.3g} waits for all ranks less"
    return promise(took, [sum(each.seconds for each in costs)] * len(took))


def _of_line(cost: Cost, told: dict[int, CallsTimed], took: list[float]) -> Finding:
    call, often = cost.most, _often(cost, told)
    said = f"{often:.3g} {'calls' if often > 1 else 'call'} a step"
    takes = _takes([cost], took)
    return Finding(
        f"{cost.what} at {call.file}:{call.line} is called {often:.3g} times {takes}"
        if cost.counted
        else f"{cost.what} at {call.file}:{call.line} takes {takes}, {said}",
        tuple(
            Evidence(
                f"{each.nanoseconds / 1e6:.1f} ms in the median step, {each.times} calls in {told[number].steps} steps",
                "none in most steps" if number == min(cost.calls) else "",
                f"rank {number}",
            )
            for number, each in list(cost.calls.items())[:SHOWN]
        ),
        _fix(cost, often, _then([cost], told, took)),
        Place(file=call.file, line=call.line),
    )


def _fix(cost: Cost, often: float, then: str) -> Fix:
    file, _, number = (cost.loop or f"{cost.most.file}:{cost.most.line}").rpartition(":")
    if cost.what == BARRIER:
        text = linecache.getline(cost.most.file, cost.most.line).rstrip()
        return Fix(f"{NO_BARRIER}: {then}", diff=f"-{text}" if text.strip().endswith("barrier()") else "")
    return Fix(f"{_at_once(often)}{then}", diff=seldom(file, int(number)))


def _at_once(often: float) -> str:
    at_once = f"put the {often:.0f} numbers of a step into one tensor (torch.stack), and " if often >= 2 else ""  # noqa: PLR2004 - more than one
    return (
        f"{at_once}where the training does not need it in each step, let the ranks agree once in a hundred, in the "
        "same ones on all ranks: "
    )


def _of_function(costs: list[Cost], told: dict[int, CallsTimed], took: list[float]) -> Finding:
    """Tell of a barrier and of what is sent beside it."""
    others = sorted((each for each in costs if each.what != BARRIER), key=lambda each: -each.seconds)
    barriers = [each for each in costs if each.what == BARRIER]
    often = sum(_often(each, told) for each in others)
    named = " and ".join(
        f"{each.what} at {each.most.file}:{each.most.line}" for each in [*barriers[:1], *others[: SHOWN - 1]]
    )
    takes = _takes(costs, took)
    times = f"{sum(_often(each, told) for each in costs):.3g} calls"
    text = linecache.getline(barriers[0].most.file, barriers[0].most.line).rstrip()
    return Finding(
        f"{named} make {times} {takes}" if costs[0].counted else f"{named} take {takes}, {times} a step",
        tuple(
            Evidence(
                f"{each.most.nanoseconds / 1e6:.1f} ms in {each.what}, {_often(each, told):.3g} calls a step",
                "" if at else "none in most steps",
                f"{each.most.file}:{each.most.line} in {each.most.function}",
            )
            for at, each in enumerate([*barriers, *others][:SHOWN])
        ),
        Fix(
            f"{BESIDE}{_at_once(often)}{_then(costs, told, took)}",
            diff=f"-{text}" if text.strip().endswith("barrier()") else "",
        ),
        Place(file=others[0].most.file, line=others[0].most.line),
    )


def _of_logs(costs: list[Cost], told: dict[int, CallsTimed], took: list[float]) -> Finding:
    """Tell of what Lightning reduces in each step because a line logs with sync_dist=True."""
    costs = sorted(costs, key=lambda each: -_often(each, told))
    often, first = sum(_often(each, told) for each in costs), costs[0].most
    takes = _takes(costs, took)
    counted = any(each.counted for each in costs)
    return Finding(
        f"{LOGGED} reduces {often:.3g} values in each step, by a barrier and an all_reduce each"
        + (", in which all ranks wait for the last" if counted else f": {takes}"),
        tuple(
            Evidence(
                f"{_often(each, told):.3g} times a step, {each.most.nanoseconds / 1e6:.1f} ms in the median step",
                "" if at else "once an epoch",
                f"{each.most.file}:{each.most.line} in {each.most.function}",
            )
            for at, each in enumerate(costs[:SHOWN])
        ),
        Fix(
            "log averages of the epoch, which are reduced once at its end (on_step=False, on_epoch=True); a value of "
            "each step, as a progress bar shows it, needs no sync_dist: "
            + (f"a step has {2 * often:.3g} waits for all ranks less" if counted else _then(costs, told, took)),
            diff="\n".join(filter(None, (_of_the_epoch(each.most.file, each.most.line) for each in costs[:SHOWN]))),
        ),
        Place(file=first.file, line=first.line),
    )


def _of_the_epoch(file: str, number: int) -> str:
    """Return a diff by which a line logs averages of the epoch alone; empty where it is not all of the call."""
    text = linecache.getline(file, number).rstrip()
    if not LOG.search(text) or text.count("(") != text.count(")"):
        return ""
    bare = re.sub(r",\s*on_(step|epoch) ?= ?(True|False)", "", text)
    return f"-{text}\n+" + re.sub(r"\bsync_dist ?= ?True", "on_step=False, on_epoch=True, sync_dist=True", bare)
