"""What a check's file declares: one card, and a facet for each instrument that can see the ailment.

A check's file reads top to bottom like an article: the docstring is the page, its first line the title; then
the card; then the facets. The file's name is the slug and its folder the area, so they cannot drift apart::

    CARD = Card("DDP501", Severity.ERROR)

    @probe
    def in_a_small_job(model: ModelExam) -> Iterator[Finding]: ...

    @sign(r"Expected to have finished reduction in the prior iteration")
    def in_logs(record: Record) -> Iterator[Finding]: ...

A facet's parameters name what it needs: a probe's ``facts``, ``gpus``, ``jobs``, ``model``, ``loader`` and
``checkpoint``; a sign's ``record``, ``match`` and ``log``. The engine of its instrument supplies them.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddpdoctor.model import Finding, Severity

Examine = Callable[..., Iterable[Finding]]


class Instrument(enum.Enum):
    """The four instruments; a facet belongs to exactly one."""

    PROBE = "probe"
    WATCH = "watch"
    SIGN = "sign"
    LINT = "lint"


class NotRun(Exception):  # noqa: N818 - no error: the check says why it has nothing to look at
    """Raised by a facet, or by what supplies its inputs, when there is nothing to examine; the text says why."""


class BadTarget(NotRun):
    """Something that the user named cannot be used; the text says what, whose fault, and where."""


@dataclass(frozen=True, slots=True)
class Card:
    """The code of a check (``DDP`` and three digits; never reused) and the usual severity of its findings.

    ``known_as`` lists other names of the ailment, which find the check as its slug does.
    """

    code: str
    severity: Severity
    known_as: tuple[str, ...] = ()


class Role(enum.Enum):
    """What a message in a log is to the failure that it belongs to.

    A ``CAUSE`` names what is wrong. A ``SYMPTOM`` is printed for several causes: the finding's ``doubt`` lists them.
    A ``CONSEQUENCE`` is printed by those who outlive a failure elsewhere. A ``HARMLESS`` one needs no action.
    """

    CAUSE = "cause"
    SYMPTOM = "symptom"
    CONSEQUENCE = "consequence"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that is compiled when it is first searched for: in most logs, most never are."""

    pattern: str

    def search(self, text: str) -> re.Match[str] | None:
        """Find its first match."""
        return _compiled(self.pattern).search(text)


_compiled = functools.cache(re.compile)


@dataclass(frozen=True, slots=True)
class Sign:
    """What the ailment looks like in a log.

    ``beside`` are other patterns that the facet asks the log for: a line that no declared pattern matches is not
    kept. ``explains`` names the checks (slugs) whose signs are mere consequences where this one holds.
    """

    pattern: Pattern
    role: Role = Role.CAUSE
    beside: tuple[Pattern, ...] = ()
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facet:
    """How one instrument recognises the ailment.

    ``subject`` narrows what the facet is shown: a Sign, or the type of an event for a watch.
    """

    instrument: Instrument
    examine: Examine
    subject: object = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Name the inputs that the facet asks for, in the order of its parameters."""
        return tuple(inspect.signature(self.examine).parameters)


@dataclass(frozen=True, slots=True)
class Check:
    """A check as the registry found it; ``origin`` is the module that declares it."""

    code: str
    slug: str
    area: str
    severity: Severity
    title: str
    page: str
    facets: tuple[Facet, ...]
    origin: str
    known_as: tuple[str, ...] = ()

    def of(self, instrument: Instrument) -> tuple[Facet, ...]:
        """Give the facets of one instrument."""
        return tuple(facet for facet in self.facets if facet.instrument is instrument)


def probe(examine: Examine) -> Facet:
    """Mark what ``ddpdoctor check`` runs: a function of named inputs that yields findings."""
    return Facet(Instrument.PROBE, examine)


def watch(event: type) -> Callable[[Examine], Facet]:
    """Mark what is shown each ``event`` of a running training."""
    return lambda examine: Facet(Instrument.WATCH, examine, event)


def sign(
    pattern: str, *, role: Role = Role.CAUSE, beside: Iterable[str] = (), explains: Iterable[str] = ()
) -> Callable[[Examine], Facet]:
    """Mark what is shown each log record in whose text ``pattern`` (a regular expression) occurs.

    The facet may ask for ``record`` (the Record), ``match`` (the match of the pattern in its text) and ``log`` (the
    Log: everything else that was said). It yields nothing where the message has another cause.
    """
    subject = Sign(Pattern(pattern), role, tuple(map(Pattern, beside)), tuple(explains))
    return lambda examine: Facet(Instrument.SIGN, examine, subject)


def lint(examine: Examine) -> Facet:
    """Mark what is shown each source module."""
    return Facet(Instrument.LINT, examine)
