"""The pictures of a page: the figures that they show, in numbers that browsers and people can take."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.findings import Report
from ddpdoctor.report.page import as_page
from ddpdoctor.report.pictures import COLUMNS, LEFT, ROWS, WIDTH, add_pictures, rows
from ddpdoctor.report.steps import PARTS
from ddpdoctor.watch.anatomy import steps_data
from ddpdoctor.watch.blocks import Block
from ddpdoctor.watch.events import RankSteps

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


def test_a_thousand_ranks_are_put_together_and_none_is_left_out_of_the_table() -> None:
    """The picture has few rows, each named by its ranks and the one that others wait for; the table has all."""
    slow = [[9 * 10**7, 0, 0, 10**6, 0]] * 5
    figures = steps([slow if rank == 777 else [[10**6, 0, 0, 9 * 10**7, 0]] * 5 for rank in range(1024)])
    shown = rows(figures)
    assert len(shown) <= ROWS
    assert [each.name for each in shown if each.name.endswith(": 777")] == ["ranks 768 to 799: 777"]
    assert len(drawn(figures).findall(".//tbody/tr")) == 1024


def test_a_moment_is_marked_and_told() -> None:
    """A line stands where the ranks stood still, and a sentence says so to who does not see it."""
    figures = steps([[[10**8, 0, 0, 0, 0]] * 6])
    end = max(span[0] for span in figures["0"]["spans"])
    root = drawn(figures, ({"at": end + 1.0, "what": "the ranks stand still"},))
    (line,) = root.iter("line")
    assert float(line.attrib["x1"]) == pytest.approx(LEFT + WIDTH, abs=1)
    assert any("the ranks stand still" in (each.text or "") for each in root.iter("p"))


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
