"""What the signs of models, loaders, frameworks and checkpoints name first, and where they abstain."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Check, Instrument, Role, Sign
from ddpdoctor.explain.engine import Examination, examination
from ddpdoctor.explain.kept import Keeper
from ddpdoctor.explain.needles import needles
from ddpdoctor.explain.sources import Origin
from ddpdoctor.registry import load_checks

if TYPE_CHECKING:
    from ddpdoctor.explain.answer import Answer

ROOT = Path(__file__).parents[1]
FRAMEWORKS = re.compile(r"DDP4[5-7]\d")
ALL = load_checks()
PREPARED = examination(ALL)  # once: it is what takes the time


def is_mine(check: Check) -> bool:
    """Say whether a check is of these areas, or of the frameworks among the launchers."""
    return check.area in {"model", "data", "checkpoint"} or bool(FRAMEWORKS.fullmatch(check.code))


SIGNED = [check for check in ALL if is_mine(check) and check.of(Instrument.SIGN)]


def answer(text: str) -> Answer:
    """Explain a log with all checks there are."""
    examined = Examination(PREPARED.signs, Keeper(PREPARED.keeper.finder))
    examined.read(Origin("train.log"), [text.encode()])
    return examined.answer()


def table() -> list[tuple[str, str]]:
    """Read the cases: after ``> slug`` the log in which it is the first cause; ``nothing`` where none of these is."""
    texts = [(ROOT / "tests" / "signs" / name).read_text() for name in ("model.txt", "held_out.txt")]
    cases = [case for text in texts for case in re.split(r"^> ", text, flags=re.MULTILINE)[1:]]
    return [(slug, log) for slug, _, log in (case.partition("\n") for case in cases)]


@pytest.mark.parametrize(("slug", "log"), table())
def test_a_message_names_its_ailment(slug: str, log: str) -> None:
    """The wordings of all versions, with as much context as a log often has; near misses name none of these checks."""
    found = answer(log)
    first = found.cause or next(iter(found.harmless), None)

    if slug == "nothing":
        assert not [each.check.slug for each in found.named if is_mine(each.check)]
    else:
        assert (first.check.slug if first else found) == slug


@pytest.mark.parametrize("check", SIGNED, ids=lambda check: check.slug)
class TestEachSign:
    """What holds for every sign of these areas."""

    def test_a_symptom_says_what_is_left_open(self, check: Check) -> None:
        """A finding carries a doubt where its sign is a symptom, and nowhere else."""
        for name in ("patient.log", "control.log"):
            named = answer((ROOT / "fixtures" / check.slug.replace("-", "_") / name).read_text()).named
            assert all((each.role is Role.SYMPTOM) == bool(each.finding.doubt) for each in named if each.check is check)

    def test_fixed_text_announces_it(self, check: Check) -> None:
        """Each pattern needs some literal text, by which lines are found without trying it on all of them."""
        for facet in check.of(Instrument.SIGN):
            assert isinstance(facet.subject, Sign)
            assert all(map(needles, (facet.subject.pattern, *facet.subject.beside)))

    def test_it_is_quick_on_long_lines(self, check: Check) -> None:
        """No pattern is quadratic: what almost matches, over and over in 20,000 characters, takes no time."""
        for facet in check.of(Instrument.SIGN):
            assert isinstance(facet.subject, Sign)
            for pattern in (facet.subject.pattern, *facet.subject.beside):
                begin = re.split(r"[\\()\[|{?*+]", pattern.pattern.lstrip("(?:\\b'"), maxsplit=1)[0] or "x"
                line = begin * (20_000 // len(begin))
                start = time.perf_counter()
                pattern.search(line)
                assert time.perf_counter() - start < 0.3
