"""What a check's file declares: an ailment, and a facet for each instrument that can see it.

Authors of checks import these names from ``ddpdoctor.check``.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from ddpdoctor.findings import Finding, Severity

Examine = Callable[..., Iterable[Finding]]
EVENTS = "ddpdoctor.watch."
WITHOUT_EVENTS: ContextVar[bool] = ContextVar("WITHOUT_EVENTS", default=False)


@contextlib.contextmanager
def without_events() -> Iterator[None]:
    """Let checks that are imported within have empty classes for the events of the watch: half of the time of lint.

    What is imported so is for lint alone, and is to be forgotten by who imports it.
    """
    before = WITHOUT_EVENTS.set(True)
    try:
        yield
    finally:
        WITHOUT_EVENTS.reset(before)


class Instrument(enum.Enum):
    """An instrument that facets are written for; a facet belongs to exactly one."""

    PROBE = "probe"
    WATCH = "watch"
    LOG = "log"
    LINT = "lint"


INPUTS = {
    Instrument.PROBE: (
        "facts", "gpus", "backends", "jobs", "model", "model_given", "loader", "checkpoint",
        "cluster",
    ),
    Instrument.WATCH: ("event", "training"),
    Instrument.LOG: ("record", "match", "log"),
    Instrument.LINT: ("script", "launch", "project"),
}  # fmt: skip
"""What the facets of each instrument can ask for, by the names of their parameters."""


class NotRun(Exception):  # noqa: N818 - no error: the check says why it has nothing to look at
    """Raised by a facet, or by what supplies its inputs, when there is nothing to examine; the text says why.

    ``wants`` names what the user can give to have it examined (see ``Result.wants``).
    """

    def __init__(self, reason: str, *, wants: str = "") -> None:
        """Keep the reason, and what is wanted."""
        super().__init__(reason)
        self.wants = wants


class BadTarget(NotRun):
    """Something that the user named cannot be used; the text says what, whose fault, and where."""


@dataclass(frozen=True, slots=True)
class Ailment:
    """The code of a check (``DDP`` and three or four digits; never reused) and the usual severity of its findings.

    ``supersedes`` names checks (slugs) whose findings about a host are mere effects, where several hosts are examined
    and this one is found of that host.
    """

    code: str
    severity: Severity
    supersedes: tuple[str, ...] = ()


class Role(enum.Enum):
    """What a message in a log is to the failure that it belongs to; it decides what the message gives way to.

    A ``CAUSE`` names what is wrong; where the finding has an ``ambiguity``, it is one of several causes, and follows
    from a certain one that the log shows before it. A ``GENERIC`` message is printed for almost any failure (a
    time-out, an exit status): it follows from anything that says more. A ``CONSEQUENCE`` is printed by those who
    outlive a failure elsewhere. A ``HARMLESS`` one needs no action.
    """

    CAUSE = "cause"
    GENERIC = "generic"
    CONSEQUENCE = "consequence"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that is compiled when it is first searched for: in most logs, most never are."""

    pattern: str

    def search(self, text: str) -> re.Match[str] | None:
        """Return its first match."""
        return _compiled(self.pattern).search(text)


_compiled = functools.cache(re.compile)


@dataclass(frozen=True, slots=True)
class LogPattern:
    """What the ailment looks like in a log.

    ``context`` are other patterns that the facet asks the log for: a line that no declared pattern matches is not
    kept. ``supersedes`` names checks (slugs): where this one holds, what they find is a mere effect of it. It is for
    what roles do not tell, a cause that another cause brings about. ``waits``: the ranks that print it wait in vain for
    another one, so an exception that the other one raised comes before it, wherever that stands in the log. ``plain``:
    what it explains is an error of any program, as a file that is not there. It is handled like an error that no check
    knows, and is told in the place of that one where nothing else explains the log.
    """

    pattern: Pattern
    role: Role = Role.CAUSE
    context: tuple[Pattern, ...] = ()
    supersedes: tuple[str, ...] = ()
    waits: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """Of a family of which one may speak: the members that the facet speaks of.

    ``decide`` is a function of named inputs, as a facet is; it returns the one member that is here, or None. The
    family is an enum, and each of its members is claimed by exactly one check.
    """

    decide: Callable[..., enum.Enum | None]
    members: tuple[enum.Enum, ...]


@dataclass(frozen=True, slots=True)
class Facet:
    """How one instrument recognises the ailment.

    ``subject`` narrows what the facet is shown: a LogPattern, or the type of an event for a watch. One with a
    ``claim`` is only asked where the family's decision is for it.
    """

    instrument: Instrument
    examine: Examine
    subject: object = None
    claim: Claim | None = None

    @property
    def functions(self) -> tuple[Callable[..., object], ...]:
        """What is called, in this order."""
        return (self.claim.decide, self.examine) if self.claim else (self.examine,)

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the inputs that the facet asks for, in the order of its parameters."""
        return tuple(dict.fromkeys(name for function in self.functions for name in parameters(function)))


@functools.cache
def parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the inputs that a function asks for."""
    return tuple(inspect.signature(function).parameters)


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
    supersedes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Return that of its code: the tuple of all checks is asked for it with each failure."""
        return hash(self.code)

    def of(self, instrument: Instrument) -> tuple[Facet, ...]:
        """Return the facets of one instrument."""
        return tuple(facet for facet in self.facets if facet.instrument is instrument)


Marker = Callable[[Examine], Facet]
"""A decorator that makes a facet of a function."""


def probe(examine: Examine) -> Facet:
    """Mark what ``ddpdoctor check`` runs: a function of named inputs that yields findings."""
    return Facet(Instrument.PROBE, examine)


def lint(examine: Examine) -> Facet:
    """Mark what is shown each Python file, as ``script``, or each file that starts trainings, as ``launch``.

    A function asks for one of them and, beyond the file, for ``project``.
    """
    return Facet(Instrument.LINT, examine)


def watch(event: type, *, claim: Claim | None = None) -> Marker:
    """Mark what is shown each ``event`` of a running training."""
    return lambda examine: Facet(Instrument.WATCH, examine, event, claim)


def log_pattern(  # noqa: PLR0913 - what a pattern declares
    pattern: str,
    *,
    role: Role = Role.CAUSE,
    context: Iterable[str] = (),
    supersedes: Iterable[str] = (),
    claim: Claim | None = None,
    waits: bool = False,
    plain: bool = False,
) -> Marker:
    """Mark what is shown each log record in whose text ``pattern`` (a regular expression) occurs.

    The facet may ask for ``record`` (the Record), ``match`` (the match of the pattern in its text) and ``log`` (the
    Log: everything else that was said). It yields nothing where the message has another cause. The rest is declared as
    in a LogPattern.
    """
    subject = LogPattern(Pattern(pattern), role, tuple(map(Pattern, context)), tuple(supersedes), waits, plain)
    return lambda examine: Facet(Instrument.LOG, examine, subject, claim)
