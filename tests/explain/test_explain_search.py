"""How ``explain`` finds the few lines and the few checks that a log is about, whatever their number."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import CHECKS, FIXTURES, PREPARED
from hypothesis import given, strategies as st

from ddpdoctor.facets import Pattern
from ddpdoctor.literals import literals
from ddpdoctor.logs import pattern_cache
from ddpdoctor.logs.candidates import declared
from ddpdoctor.logs.own_findings import OWN
from ddpdoctor.logs.pattern_cache import cached
from ddpdoctor.logs.search.finder import finder
from ddpdoctor.logs.search.words import LiteralIndex

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PIECES = st.lists(st.sampled_from(["rank", "ranks", " ", "_", "a", "NCCL", ".", "é", "not", "7"]), max_size=8).map(
    "".join
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that the user's cache is in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@given(st.lists(PIECES.filter(bool), max_size=8), PIECES)
def test_the_index_finds_all_literals_that_a_text_holds(wanted: list[str], text: str) -> None:
    """And no other: as if each were searched for by itself."""
    index = LiteralIndex(literal.encode() for literal in wanted)

    assert set(index.within(text.encode())) == {each.encode() for each in wanted if each in text}


def test_more_patterns_are_not_more_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of patterns only those are tried whose literal the text holds."""
    tried: list[str] = []
    search = Pattern.search

    def counted(pattern: Pattern, text: str) -> re.Match[str] | None:
        tried.append(pattern.pattern)
        return search(pattern, text)

    monkeypatch.setattr(Pattern, "search", counted)
    many = [Pattern(rf"cause number {number}x of \d+") for number in range(4000)]

    found = finder(many).matching("it was cause number 17x of 4000")

    assert found == (many[17],)
    assert tried == [many[17].pattern]


@pytest.mark.usefixtures("home")
def test_the_cache_holds_what_the_checks_declare() -> None:
    """The same patterns in the same order, their literals, and the facets that they belong to; read or built."""
    expected = declared(CHECKS)
    for _ in range(2):
        patterns, needs = cached()

        assert [each.log_pattern for each in patterns] == [each.log_pattern for each in expected]
        assert {each.load().facets[each.number].subject == each.log_pattern for each in patterns} == {True}
        assert {name: frozenset(texts) for name, texts in needs.items()} == {
            pattern.pattern: literals(pattern.pattern)
            for pattern in PREPARED.buffer.finder.patterns
            if pattern not in OWN
        }


def damages(file: Path) -> Iterator[None]:
    """Damage a cache in several ways."""
    for content in (b"", b"{", b"[]", b'{"stamp": 1}', json.dumps({"stamp": "x", "rows": []}).encode()):
        file.write_bytes(content)
        yield
    file.unlink()
    file.mkdir()
    yield


def test_a_damaged_cache_costs_only_time(home: Path) -> None:
    """It is built anew, or done without."""
    whole = len(cached()[0])
    (file,) = home.rglob("*.json")

    for _ in damages(file):
        assert len(cached()[0]) == whole


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user has no home, and where it is no folder."""
    for nowhere in ("/proc/nowhere", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", nowhere)

        assert cached()[0]


def test_the_cache_follows_the_files_of_the_checks(tmp_path: Path) -> None:
    """A file that is changed, added or taken away makes another stamp; compiled ones and folders of them do not."""
    (tmp_path / "area").mkdir()
    (tmp_path / "area" / "one.py").write_text("x = 1\n")

    def stamp() -> str:
        return pattern_cache._stamp([str(tmp_path)])

    stamps = [stamp()]
    (tmp_path / "area" / "one.py").write_text("x = 12\n")
    stamps.append(stamp())
    (tmp_path / "area" / "two.py").write_text("")
    stamps.append(stamp())
    (tmp_path / "area" / "__pycache__").mkdir()
    (tmp_path / "area" / "__pycache__" / "two.py").write_text("")

    assert stamp() == stamps[-1]
    assert len({*stamps}) == 3


@pytest.mark.parametrize(("slug", "most"), [("healthy", 0), ("libuv_missing", 3)])
def test_only_checks_that_a_log_shows_are_imported(slug: str, most: int, home: Path) -> None:
    """Of more than two hundred; none for a log in which nothing failed."""
    log = home / "fine.log"
    log.write_text("step 1\n")
    path = log if slug == "healthy" else FIXTURES / slug / "broken.log"
    code = (
        "import sys; from ddpdoctor.cli import cli\n"
        f"try: cli.main(['explain', {str(path)!r}], standalone_mode=False)\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('ddpdoctor.checks.') and name.count('.') == 3])"
    )
    cached()

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    imported = [name for name in done.stdout.splitlines()[-1].split("'") if name.startswith("ddpdoctor")]
    assert len(imported) <= most, imported
