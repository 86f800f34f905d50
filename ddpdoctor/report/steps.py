"""Where a step goes, by rank: as a table of the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

PARTS = {
    "data": "waiting for data",
    "first": "first batch",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "rest": "the rest",
}
"""The parts of a step, in the order in which they follow each other, and how they are called."""
CALL = 0.0002  # seconds of a step: a shorter call is not worth a word
CALLS = 3  # that are named
BUSY = 0.3  # of the time: beyond it, most checks of speed say nothing
WIDE = 0.1  # of the parameters
LINE = 0.05  # of the time: a line that takes less has no row
COUNTED = "What was counted, and needs no clock"
SENT = {"all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "barrier", "self.log(sync_dist=True)"}
EACH = 0.8  # of a line, of a step: as good as one in each
OFTEN = 1.5  # small collectives of a line, of a step: what a step has once is said by the lines that take long
MANY, TINY = 8, 1 << 18  # buckets; bytes of one on average
APART = 0.2  # of the time: ranks whose lines differ by so much are both told
RAMP = "_.-=+*#"  # plain ASCII, as all text for a terminal
COLUMNS, FEWEST, CHANGED = 24, 8, 1.5  # of a course: characters, the fewest of them, longest against shortest
SHOWN = 16  # ranks of a terminal's table
MEANING = (
    "Backward holds the wait for the other ranks. First batch: from the start of a loader to its first batch. "
    "The rest: the loss, clipping, logging, evaluation, checkpoints."
)
NOT_CLOSELY = (
    "Nothing was measured closely: the training ended before that, in less than 10 steps more than --profile has."
)
NOT_ONE_DDP = "what the backward waits for is counted where one DDP model is trained alone."
ON_GPU = "On a GPU these are the times of Python: kernels run on while it does something else."


def ordered(steps: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return what is known of each rank, by rank."""
    return sorted((int(rank), each) for rank, each in steps.items())


def share(each: Mapping[str, Any], part: str) -> float:
    """Return a part's share of the steps of a rank: of all of them together."""
    whole: Sequence[Sequence[float]] = each["spans"]
    at = 2 + list(PARTS).index(part)
    return sum(span[at] for span in whole) / max(1e-9, sum(span[1] for span in whole))


def steps_lines(steps: Mapping[str, Any], profile: Mapping[str, Any]) -> list[str]:
    """Return the table: the median step in ms, and of each part its share; then what was measured closely."""
    ranks = ordered(steps)
    if not ranks:
        return ["Too few steps to say where they go: 48 of the optimizer are wanted on each rank."]
    used = [part for part in PARTS if any(share(each, part) >= 0.005 for _, each in ranks)]  # noqa: PLR2004 - 0.5 %
    courses = [course(each["spans"]) for _, each in ranks[:SHOWN]]
    rows = [["rank", "steps", "ms a step (range)", *(PARTS[part] for part in used)]]
    for rank, each in ranks[:SHOWN]:
        low, middle, high = (1e3 * value for value in each["a_step"]["total"])
        shares = [f"{share(each, part):.0%}" for part in used]
        rows.append([str(rank), str(each["steps"]), f"{middle:.1f} ({low:.1f} to {high:.1f})", *shares])
    if any(courses):
        rows = [[*row, text] for row, text in zip(rows, ["first to last step", *courses], strict=True)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(ranks) > SHOWN:
        lines.append(f"and {len(ranks) - SHOWN} more ranks: --report")
    return [
        "Where a step goes:",
        *(f"  {line}" for line in lines),
        MEANING,
        *closely(profile),
        *_caveats(ranks, profile),
    ]


def course(spans: Sequence[Sequence[float]]) -> str:
    """Return how long steps took from the first to the last, in so many characters; empty where that hardly changed.

    The lowest character is for a third of the longest or less.
    """
    count = min(COLUMNS, len(spans))
    parts = [spans[at * len(spans) // count : (at + 1) * len(spans) // count] for at in range(count)]
    took = [statistics.median(span[1] for span in part) for part in parts]
    if count < FEWEST or max(took) < CHANGED * min(took):
        return ""
    lowest = max(took) / 3
    return "".join(
        RAMP[min(len(RAMP) - 1, int(len(RAMP) * max(0.0, each - lowest) / (max(took) - lowest)))] for each in took
    )


def closely(profile: Mapping[str, Any]) -> list[str]:
    """Return what part of the communication the backward waits for: that of the rank that waits least."""
    if not profile:
        return [NOT_CLOSELY]
    cost = 1e3 * max(each["cost"] for each in profile.values())
    measuring = (
        f"Measuring took {cost:.1f} ms more for each of these steps, between them and on a thread beside them; no "
        "other step is measured so."
    )
    counted = [each for each in profile.values() if each.get("exposed")]
    if len(counted) < len(profile):
        steps, total = next((each["steps"], 1e3 * each["total"][1]) for each in profile.values())
        said = f"Measured closely, {steps} steps of {total:.1f} ms; {NOT_ONE_DDP} {measuring}"
        return [said, *_wide(profile), *_calls(profile), *lines_told(profile)]
    least = min(counted, key=lambda each: float(each["exposed"][1]))
    total, exposed, hidden = (1e3 * least[name][1] for name in ("total", "exposed", "hidden"))
    said = (
        f"Measured closely, {least['steps']} steps: after the backward has computed it waits {exposed:.1f} ms for "
        f"communication, {exposed / max(total, 1e-9):.0%} of a step of {total:.1f} ms; {hidden:.1f} ms of it were "
        f"hidden. That is the rank that waits least: what others wait longer, they wait for a rank. {measuring}"
    )
    return [said, *_wide(profile), *_calls(profile), *lines_told(profile)]


def _wide(profile: Mapping[str, Any]) -> list[str]:
    """Tell as a fact that a model is in float64, where torch's default is another: it may be wanted."""
    told = [each for each in profile.values() if each.get("float64", 0.0) >= WIDE]
    if not told or len(told) < len(profile):
        return []
    at = f" ({told[0]['float64_at']})" if told[0]["float64_at"] else ""
    part = min(each["float64"] for each in told)
    said = f"{part:.0%} of the model's parameters are float64{at}, which is not torch's default: "
    return [f"{said}in float32 weights, gradients and what is sent are half as large."]


def _calls(profile: Mapping[str, Any]) -> list[str]:
    """Name the lines that take longest in each step: those of the rank that they take longest of."""
    by_line: dict[str, tuple[float, str]] = {}
    for rank, each in profile.items():
        for call in each["calls"]:
            text = f"{call['what']} at {call['file']}:{call['line']}, {call['calls']:.3g} a step on rank {rank}"
            key = f"{call['what']} {call['file']}:{call['line']}"
            by_line[key] = max(by_line.get(key, (0.0, "")), (call["seconds"], text))
    longest = [each for each in sorted(by_line.values(), reverse=True) if each[0] >= CALL][:CALLS]
    said = [f"{1e3 * seconds:.1f} ms {text}" for seconds, text in longest]
    return [f"Lines that keep a step waiting: {'; '.join(said)}."] if said else []


def lines_told(profile: Mapping[str, Any]) -> list[str]:
    """Return the lines of the loop that its time goes to, on the first rank, and where another rank's differ."""
    ranks = sorted((int(rank), each["lines"]) for rank, each in profile.items() if each.get("lines"))
    if not ranks:
        return []
    (first, lines), *others = ranks
    told = [f"Lines of the loop, by their share of its time on rank {first}:", *line_rows(lines)]
    for rank, theirs in others[: SHOWN - 1]:
        if differ(lines, theirs):
            told += [f"On rank {rank}:", *line_rows(theirs)]
    return told


def line_rows(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row for each line that takes a share worth a word."""
    return [f"  {each['share']:4.0%}  {line_text(each)}" for each in lines if each["share"] >= LINE]


def line_text(each: Mapping[str, Any]) -> str:
    """Return where a line is, what is done there, and the innermost line that it spends most in."""
    inner = each["inner"]
    what = f": {each['kind']}" if each["kind"] else ""
    text = f"{each['file']}:{each['line']} in {each['function']}{what}"
    if (inner["file"], inner["line"]) != (each["file"], each["line"]):
        text += f", {inner['share']:.0%} at {inner['file']}:{inner['line']} in {inner['function']}"
    return text


def differ(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a line has a much larger share on one rank than on the other."""
    by_line = [{(each["kind"], each["file"], each["line"]): each["share"] for each in lines} for lines in (one, other)]
    return any(abs(by_line[0].get(key, 0.0) - by_line[1].get(key, 0.0)) >= APART for key in {*by_line[0], *by_line[1]})


def certain(profile: Mapping[str, Any]) -> list[str]:
    """Return what costs time on any machine, and can be told where nothing can be timed: it is counted."""
    told, said = list(profile.values()), _collectives(profile)
    if not told or not all(each.get("exposed") for each in told):
        return [f"{COUNTED}: {'; '.join(said)}."] if said else []
    if (times := min(each["reduced"] for each in told)) > 1:
        said.append(f"each step has {times} backwards, and the gradients are averaged in each (model.no_sync())")
    if all(each["searched_in_vain"] for each in told):
        said.append("DDP looks for unused parameters in each step, and all were used (find_unused_parameters=False)")
    buckets = told[0]["buckets"]
    if len(buckets) >= MANY and sum(buckets) <= len(buckets) * TINY:
        said.append(f"gradients travel in {len(buckets)} small buckets (bucket_cap_mb)")
    return [f"{COUNTED}: {'; '.join(said)}."] if said else []


def _collectives(profile: Mapping[str, Any]) -> list[str]:
    """Name the lines that call several small collectives in each step, on all ranks."""
    by_line: dict[tuple[str, str, int], list[float]] = {}
    for each in profile.values():
        for call in each["calls"]:
            if call["what"] in SENT:
                by_line.setdefault((call["what"], call["file"], call["line"]), []).append(call["calls"])
    found = [(min(times), *key) for key, times in by_line.items() if len(times) == len(profile)]
    often = sorted((each for each in found if each[0] >= OFTEN), reverse=True)[:CALLS]
    said = [f"{times:.3g} {what} a step at {file}:{line}" for times, what, file, line in often]
    barriers = sorted(each for each in found if each[1] == "barrier" and EACH <= each[0] < OFTEN)
    if len(barriers) > 1:
        where = ", ".join(f"{file}:{line}" for *_, file, line in barriers)
        said.append(f"{len(barriers)} barriers a step ({where}), where the backward lets the ranks meet anyway")
    return said


def _caveats(ranks: Sequence[tuple[int, Mapping[str, Any]]], profile: Mapping[str, Any]) -> list[str]:
    said = [ON_GPU] if any(each["device"] == "cuda" for _, each in ranks) else []
    starved = max(each["waited_for_a_core"] for _, each in ranks)
    if starved > 0.1:  # noqa: PLR2004 - a tenth
        said.append(f"Ranks waited for a core {starved:.0%} of the time: on a machine of their own they are faster.")
    if starved > BUSY:
        said.append(
            "So it cannot be told on this machine what waiting for data, for other ranks and for communication costs; "
            "the shares of lines that compute hold."
        )
        said += certain(profile)
    return said
