"""The pictures of a page: the figures that they show, in numbers that browsers and people can take."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.findings import Report
from ddpdoctor.report.html.curves import LINE, LOSSES, MOST, add_curves
from ddpdoctor.report.html.heat import Cell, add_heat
from ddpdoctor.report.html.page import as_page
from ddpdoctor.report.html.pictures import COLUMNS, LEFT, ROWS, WIDTH, add_pictures, rows
from ddpdoctor.report.steps import PARTS
from ddpdoctor.watch.events import Failed, RankSteps
from ddpdoctor.watch.events.steps.blocks import Block
from ddpdoctor.watch.figures.anatomy import marks, steps_data
from ddpdoctor.watch.figures.norms import distances
from ddpdoctor.watch.training import Training

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
parts = st.lists(st.integers(0, 10**8), min_size=5, max_size=5)


def steps(ranks: list[list[list[int]]]) -> dict[str, Any]:
    """Return what is known of ranks whose spans took these nanoseconds: data, first, forward, backward, optimizer."""
    return steps_data(RankSteps(number, 1, tuple(_spans(each)), device="cpu") for number, each in enumerate(ranks))


def _spans(spans: list[list[int]]) -> list[Block]:
    end, found = 10**12, []
    for number, each in enumerate(spans):
        total = sum(each) + 10**6
        end += total
        found.append(Block(number, end, total, *each))
    return found


def drawn(figures: dict[str, Any], marks: tuple[dict[str, Any], ...] = ()) -> ET.Element:
    """Return the pictures of these figures."""
    root = ET.Element("main")
    add_pictures(root, figures, marks)
    return root


@given(st.lists(st.lists(parts, min_size=5, max_size=8), min_size=1, max_size=4))
def test_the_bars_of_a_rank_are_as_wide_as_its_shares(ranks: list[list[list[int]]]) -> None:
    """Each bar begins where the last one ended, and all of them lie in the picture, whatever the figures are."""
    figures = steps(ranks)
    svg = drawn(figures).findall(".//svg")[0]
    by_top: dict[str, list[tuple[float, float]]] = {}
    for rect in svg.iter("rect"):
        by_top.setdefault(rect.attrib["y"], []).append((float(rect.attrib["x"]), float(rect.attrib["width"])))
    assert len(by_top) == len(ranks)
    for bars in by_top.values():
        x = float(LEFT)
        for left, width in bars:
            assert left == pytest.approx(x, abs=0.5)
            x = left + width
        assert x <= LEFT + WIDTH + 1


@given(st.lists(parts, min_size=5, max_size=300))
def test_the_course_lies_within_the_picture(spans: list[list[int]]) -> None:
    """No bar of the course begins before the first step or ends after the last; their number is bounded."""
    svg = drawn(steps([spans])).findall(".//svg")[1]
    for path in svg.iter("path"):
        moves = re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", path.attrib["d"])
        assert len(moves) <= COLUMNS + 1
        for x, width in moves:
            assert LEFT - 1 <= float(x) <= float(x) + float(width) <= LEFT + WIDTH + 1


def test_the_names_of_hosts_fit_beside_the_cells() -> None:
    """Without the domain that all have; what is longer still is squeezed. Addresses stay whole."""
    for names, first in (
        ([f"node-{number:03d}.cluster.example.com" for number in range(60)], "node-000 to node-001"),
        ([f"10.0.0.{number}" for number in range(60)], "10.0.0.0 to 10.0.0.1"),
    ):
        root = ET.Element("main")
        add_heat(root, "", names, [[Cell("", 0)] * 60] * 60, "", {0: "good"})
        labels = [each for each in root.iter("text") if each.attrib["x"] == "0"]
        assert labels[0].text == first
        assert all(len(each.text or "") <= 25 or "textLength" in each.attrib for each in labels)


def test_a_thousand_ranks_are_put_together_and_none_is_left_out_of_the_table() -> None:
    """The picture has few rows, each named by its ranks and the one that others wait for; the table has all."""
    slow = [[9 * 10**7, 0, 0, 10**6, 0]] * 5
    figures = steps([slow if rank == 777 else [[10**6, 0, 0, 9 * 10**7, 0]] * 5 for rank in range(1024)])
    shown = rows(figures)
    assert len(shown) <= ROWS
    assert [each.name for each in shown if each.name.startswith("rank 777 ")] == ["rank 777 of 768 to 799"]
    assert len(drawn(figures).findall(".//tbody/tr")) == 1024
    (longest,) = {each.attrib["textLength"] for each in drawn(figures).iter("text") if "textLength" in each.attrib}
    assert float(longest) < LEFT, "the longest name ends before the bars begin"


def test_a_moment_is_marked_and_told() -> None:
    """A line stands where the ranks stood still, and a sentence says so to who does not see it."""
    figures = steps([[[10**8, 0, 0, 0, 0]] * 6])
    end = max(span[0] for span in figures["0"]["spans"])
    root = drawn(figures, ({"at": end + 1.0, "what": "the ranks stand still"},))
    (line,) = root.iter("line")
    assert float(line.attrib["x1"]) == pytest.approx(LEFT + WIDTH, abs=1)
    assert any("the ranks stand still" in (each.text or "") for each in root.iter("p"))


def test_a_launcher_that_fails_is_called_one() -> None:
    """The process that starts the ranks is none of them."""
    training = Training()
    training.add(Failed(pid=1, time=5.0, error="SignalException", text=""))

    assert [each["what"] for each in marks([training])] == ["the launcher fails: SignalException"]


def test_the_page_fetches_nothing_and_has_words_for_each_picture() -> None:
    """No address, no script; each picture has a title and a description, and each part its name."""
    page = as_page(Report(()), {"steps": steps([[[10**7] * 5] * 6] * 2), "marks": []})
    assert not re.search(r"https?:|<script|<img|url\(", page)
    assert page.count('role="img"') == page.count("<desc>") == 2
    assert all(name in page for name in PARTS.values())
    assert "<svg" not in as_page(Report(()), {}), "nothing was measured"


@pytest.mark.nightly
@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
def test_a_browser_draws_all_bars(tmp_path: Path) -> None:
    """Chromium lays the page out, dark or light: the pictures are there, and nothing is refused."""
    page = tmp_path / "page.html"
    page.write_text(as_page(Report(()), {"steps": steps([[[10**7] * 5] * 6] * 2), "marks": []}))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("<rect") == 2 * len(PARTS)
    assert "Refused" not in done.stderr


def profile(ranks: int, *, slow: int = -1) -> dict[str, Any]:
    """Return what was measured of so many ranks, of which one spends half of its time in a line of its own."""

    def line(kind: str, number: int, share: float) -> dict[str, Any]:
        inner = {"file": "/home/me/meter.py", "line": 7, "function": "update", "share": share}
        return {"kind": kind, "file": "/home/me/train.py", "line": number, "share": share, "inner": inner}

    own = [line("checkpoint written", 30, 0.5)]
    return {
        str(rank): {"lines": [line("backward", 20, 0.4), line("", 21, 0.04), *(own if rank == slow else ())]}
        for rank in range(ranks)
    }


def test_each_line_of_the_loop_has_a_row_with_its_share_on_each_rank() -> None:
    """Of many ranks the least, the most, and on which one; what takes next to nothing has no row."""
    page = as_page(Report(()), {"profile": profile(2, slow=1)})
    assert "Which lines the time goes to" in page
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", page)
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in body.split("</tr>") if row]
    assert rows[0][:3] == ["0%", "50%", "/home/me/train.py:30"]
    assert rows[1][:3] == ["40%", "40%", "/home/me/train.py:20"]
    assert len(rows) == 2
    many = as_page(Report(()), {"profile": profile(1024, slow=777)})
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", many)
    assert re.sub(r"<[^>]+>", " ", body).split()[:3] == ["0%", "50%", "777"]
    assert "Which lines" not in as_page(Report(()), {"profile": {}})


def test_losses_are_drawn_where_ranks_went_apart_and_only_there() -> None:
    """Of ranks that agree each has its own batches: their losses differ, and say nothing."""
    apart, alike = norms({0: [1.0, 2.0], 1: [1.0, 3.0]}), norms({0: [1.0], 1: [1.0]}, "gradients", "weights")
    for each in (apart, alike):
        for curves in each["ranks"].values():
            curves["losses"] = [-0.5, None][: len(curves["weights"])]
    root = ET.Element("main")
    add_curves(root, [alike])
    assert len(root) == 0
    add_curves(root, [apart])
    assert [each.text for each in root.iter("h3")][-1] == LOSSES
    lowest = next(each.text for each in list(root.iter("svg"))[-1].iter("text") if each.attrib.get("class") == "left")
    assert lowest == "-0.5", "a loss can be negative"


def norms(ranks: dict[int, list[float]], *equal: str) -> dict[str, Any]:
    """Return figures of one optimizer, the same for gradients and weights, of these ranks."""
    steps = list(range(1, 1 + max(map(len, ranks.values()))))
    figures = {str(rank): {"gradients": curve, "weights": curve} for rank, curve in ranks.items()}
    return {"steps": steps, "equal": list(equal), "ranks": figures}


@given(st.lists(st.lists(st.floats(0) | st.just(math.nan), min_size=4, max_size=4), min_size=1, max_size=12))
def test_curves_lie_within_their_picture(ranks: list[list[float]]) -> None:
    """Whatever the figures are, each point and each name lies in the frame, no two names on one line."""
    root = ET.Element("main")
    add_curves(root, [norms(dict(enumerate(ranks)), "weights")])
    (svg,) = root.iter("svg")
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for point in svg.iter("circle"):
        assert 0 <= float(point.attrib["cx"]) <= width
        assert 0 <= float(point.attrib["cy"]) <= height
    names = [float(each.attrib["y"]) for each in svg.iter("text") if (each.text or "").startswith("rank ")]
    assert len(names) <= MOST
    assert all(0 <= each <= height for each in names)
    assert all(after - before >= LINE - 0.2 for before, after in pairwise(sorted(names)))


def test_what_is_equal_is_not_drawn_and_of_many_ranks_those_that_went_apart() -> None:
    """No picture where nothing differs; of a thousand ranks the one that left is drawn, and all in figures."""
    root = ET.Element("main")
    add_curves(root, [norms({0: [1.0], 1: [1.0]}, "gradients", "weights")])
    assert len(root) == 0
    add_curves(root, [norms({rank: [1.0, 5.0 if rank == 777 else 1.0] for rank in range(1024)}, "weights")])
    (svg,) = root.iter("svg")
    assert "rank 777" in [each.text for each in svg.iter("text")]
    assert len(list(root.iter("tr"))) == 1 + 1024


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=3), st.integers(0, 2), st.floats(1, 9))
def test_the_rank_that_went_away_lies_furthest_from_the_mean(point: list[float], rank: int, by: float) -> None:
    """A rank that holds other weights than the two that agree lies twice as far from the mean of all as they do."""
    prints: list[Any] = [((*point, 1.0),)] * 3
    prints[rank] = ((*(each + by for each in point), 1.0),)
    found = [each for each in distances(prints) if each is not None]
    assert found[rank] == pytest.approx(2 * min(found), rel=1e-3)


def test_the_counts_of_many_ranks_are_folded_and_each_row_has_its_name() -> None:
    """A screen reader says the rank with each figure; a key's colour and its word are one piece."""

    def page(ranks: int) -> str:
        counts = {"batches": 1, "forwards": 1, "steps": 1, "communications": 1}
        return as_page(Report(()), {"watched": {str(rank): counts for rank in range(ranks)}})

    assert "<caption>What the ranks did</caption>" in page(4)
    assert "<summary>What the ranks did</summary>" in page(100)
    root = drawn(steps([[[10**7] * 5] * 6] * 3))
    assert [each.text for each in root.findall(".//tbody/tr/th[@scope='row']")] == ["0", "1", "2"]
    (table,) = root.findall(".//table")
    assert table.attrib["aria-label"] == "The figures of all ranks"
    pairs = root.findall(".//span[@class='pair']")
    assert [each.findall("span")[1].text for each in pairs] == list(PARTS.values())


@pytest.mark.nightly
@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
def test_the_first_page_of_a_print_has_more_than_the_heading(tmp_path: Path) -> None:
    """A section that is longer than a sheet is divided between its pictures."""
    page, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(as_page(Report(()), {"steps": steps([[[10**7] * 5] * 6] * ROWS), "marks": []}))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    subprocess.run([*command, f"--print-to-pdf={printed}", page.as_uri()], capture_output=True, timeout=60, check=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= 2


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2.1 defines it."""
    digits = colour.removeprefix("#")
    digits = "".join(2 * each for each in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours: 1 to 21."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("dark", "ground"), [(False, "#ffffff"), (True, "#121212")])
def test_colours_can_be_told_from_the_ground(*, dark: bool, ground: str) -> None:
    """Text has a contrast of 4.5 or more, lines and marks one of 3, by day and in dark mode, as WCAG 2.1 asks (AA)."""
    style = (resources.files("ddpdoctor.report.html") / "page.css").read_text()
    night = re.compile(r"@media \(prefers-color-scheme: dark\) \{([^{}]*\{[^{}]*\})\s*\}")
    colours = dict(re.findall(r"--([\w]+): (#[0-9a-f]{6}|#[0-9a-f]{3});", night.sub("", style)))
    if dark:
        colours |= dict(re.findall(r"--([\w]+): (#[0-9a-f]{6}|#[0-9a-f]{3});", " ".join(night.findall(style))))

    text = ["error", "warning", "note", *(f"curve{number}" for number in range(8))]
    assert {name: contrast(colours[name], ground) for name in text if contrast(colours[name], ground) < 4.5} == {}
    assert min(contrast(colours[name], ground) for name in ("line", "mark")) >= 3
    on_bars = {name: contrast(colours[name], colours["inside"]) for name in ("data", "forward", "optimizer")}
    assert min(on_bars.values()) >= 4.5, on_bars
    assert min(contrast(colours[name], "#000") for name in ("first", "backward", "rest")) >= 4.5
    assert re.search(r"svg rect\[class\] \{ stroke: var\(--line\)", style), "each bar has a line around it"


def test_what_can_be_wider_than_the_window_is_reached_by_keyboard_and_has_a_name() -> None:
    """Tables and pictures alike: some browsers scroll only what the tab key has come to."""
    page = as_page(Report(()), {"steps": steps([[[10**7] * 5] * 6] * 2), "marks": [], "profile": profile(2)})
    wide = re.findall(r'<div class="wide"([^>]*)>', page)
    assert len(wide) == 4
    assert all('tabindex="0"' in each and re.search(r'aria-label="[^"]+"', each) for each in wide)


def test_the_key_names_what_the_picture_has() -> None:
    """A training without a loader waits for no data, and has no first batch."""
    root = drawn(steps([[[0, 0, 10**7, 10**7, 10**6]] * 6]))
    assert [each.text for each in root.findall(".//p[@class='key']//span[@class='pair']/span[2]")] == [
        "forward", "backward", "optimizer", "the rest",
    ]  # fmt: skip
