from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import assume, given, strategies as st

from ddpdoctor.cli.screen.show import Show
from ddpdoctor.findings import (
    TIME,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Place,
    Rehearsed,
    Report,
    Result,
    Severity,
    Status,
    Table,
)
from ddpdoctor.redact import HIDDEN, redact, redact_environ, redacted
from ddpdoctor.report.data import as_dict, as_json, plain
from ddpdoctor.report.html.page import COUNTS, as_page
from ddpdoctor.report.junit import as_junit
from ddpdoctor.report.style import PLAIN, Style
from ddpdoctor.report.text import printable, result_text
from ddpdoctor.report.verdict import closing_text, problem_text, verdict

SCHEMA = json.loads((resources.files("ddpdoctor.report") / "schema.json").read_text())
WORDS = st.text(min_size=1, max_size=40)
PLACES = st.builds(
    Place,
    file=st.none() | WORDS,
    line=st.none() | st.integers(1, 9),
    rank=st.none() | st.integers(0, 9),
    key=st.none() | WORDS,
)
FINDINGS = st.builds(
    Finding,
    message=WORDS,
    evidence=st.lists(st.builds(Evidence, WORDS, WORDS, WORDS), min_size=1, max_size=12).map(tuple),
    fix=st.builds(Fix, WORDS, WORDS, WORDS),
    place=PLACES,
    severity=st.sampled_from(Severity),
    table=st.none()
    | st.builds(Table, st.just(("rank", "samples")), st.lists(st.tuples(st.integers(), WORDS)).map(tuple)),
    ambiguity=st.none() | st.builds(Ambiguity, st.lists(WORDS, min_size=1).map(tuple), WORDS),
)
RESULTS = st.builds(
    lambda status, findings, reason, seconds, wants: Result(
        "DDP501",
        "some-slug",
        "model",
        "A title",
        status,
        findings if status is Status.FAILED else (),
        reason,
        seconds,
        wants if status is Status.NOT_RUN else "",
    ),
    st.sampled_from(Status),
    st.lists(FINDINGS, min_size=1, max_size=3).map(tuple),
    WORDS,
    st.floats(0, 1e6),
    st.sampled_from(("", "model", "batch", "loader", "checkpoint", "gpus", TIME)),
)
REPORTS = st.builds(
    Report,
    st.lists(RESULTS, max_size=4).map(tuple),
    st.lists(WORDS, max_size=2).map(tuple),
    st.floats(0, 1e6),
    st.none() | st.builds(Rehearsed, WORDS, st.integers(1, 8), st.just(3), st.just(12), st.floats(0, 1e6), WORDS),
)
FINDING = Finding(
    "2 of 4 parameters unused",
    (Evidence("a.weight", "a gradient", "rank 0"),),
    Fix("remove it", "true"),
    severity=Severity.ERROR,
)


def _result(status: Status = Status.FAILED, *findings: Finding, reason: str = "") -> Result:
    return Result("DDP501", "unused-parameters", "model", "Unused", status, findings, reason)


@given(REPORTS, st.sampled_from(Severity))
def test_json_of_any_report_is_valid_by_the_schema(report: Report, fail_on: Severity) -> None:
    """Whatever texts are in it, the JSON parses, obeys the schema, and holds every finding."""
    data = json.loads(as_json(report, fail_on, {"torch": "2.13", "nan": float("nan")}))

    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert sum(len(result["findings"]) for result in data["results"]) == len(report.findings())
    assert data["exit_status"] == report.exit_status(fail_on)


@given(REPORTS, st.sampled_from(Severity))
def test_junit_of_any_report_parses_back(report: Report, fail_on: Severity) -> None:
    """A case for each check; failures are those at the level that fails."""
    root = ET.fromstring(as_junit(report, fail_on).encode())  # noqa: S314 - our own text
    cases = [case for case in root.iter("testcase") if case.get("name") != "target"]

    assert len(cases) == len(report.results)
    failed = [r for r in report.results if any((f.severity or 0) >= fail_on for f in r.findings)]
    assert len(list(root.iter("failure"))) == len(failed)


@given(REPORTS)
def test_text_of_any_report_is_harmless_on_any_terminal(report: Report) -> None:
    """Only printable ASCII and line ends: no escape sequence of a file name or exception reaches the terminal."""
    text = "\n".join([*(result_text(result, verbose=True) for result in report.results), closing_text(report)])

    assert all(" " <= char <= "~" or char == "\n" for char in text)


class Words(HTMLParser):
    """Collects what a page shows, and what it would fetch or run."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.shown: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and its attributes."""
        self.tags.append(tag)
        self.open += [] if tag == "meta" else [tag]
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element: no other."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is shown."""
        self.shown.append(data)


@given(REPORTS)
def test_a_page_shows_all_findings_and_fetches_nothing(report: Report) -> None:
    """Whatever text a report holds: it is shown as text, within elements that are closed, by no script or link."""
    page = Words()
    page.feed(as_page(report, {"watched": {"0": dict.fromkeys(COUNTS, 3.0)}}))
    page.close()

    assert page.open == []
    assert not {"script", "link", "img", "a", "iframe"} & set(page.tags)
    assert not {"src", "href", "onclick"} & {name for name, _ in page.attributes}
    shown = "".join(page.shown)
    for finding in report.findings():
        for text in (finding.message, finding.fix.summary, finding.evidence[0].seen):
            assert all(part in shown for part in re.split(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", text))


@given(REPORTS, st.integers(40, 200))
def test_no_line_of_any_report_is_wider_than_the_terminal(report: Report, width: int) -> None:
    """Lines end between words; only a word that is too long by itself, and what is to be pasted, is wider."""
    style = Style(width)
    bare = [replace(result, findings=tuple(map(_without_paste, result.findings))) for result in report.results]
    text = "\n".join([*(result_text(result, style, verbose=True) for result in bare), closing_text(report, style)])
    words = {word for line in text.splitlines() for word in line.split() if len(word) > width - 26}

    for line in text.splitlines():
        assert len(line) <= width or words & set(line.split())


def _without_paste(finding: Finding) -> Finding:
    return replace(finding, fix=replace(finding.fix, command="", diff=""), ambiguity=None, table=None)


@given(REPORTS, st.sampled_from(Severity))
def test_the_verdict_agrees_with_the_exit_status(report: Report, fail_on: Severity) -> None:
    """It leads the end of the report, and calls well only what was looked at as a whole and has no warning."""
    status, said = report.exit_status(fail_on), verdict(report)
    well = said.startswith("Nothing wrong was found")

    assert closing_text(report, Style(1000)).splitlines()[0] == said
    assert bool(problem_text(report)) is (status >= 2)
    assert well is (status < 2 and not report.findings(Severity.WARNING))


def test_a_finding_shows_all_that_it_says() -> None:
    """Severity, code, slug, place, evidence next to what is expected, the fix to paste, and where to read more."""
    finding = replace(FINDING, place=Place(file="train.py", line=31, rank=1), fix=Fix("remove it", diff="- a\n+ b"))
    text = result_text(_result(Status.FAILED, finding))

    assert text.splitlines() == [
        "error DDP501 unused-parameters: 2 of 4 parameters unused",
        "  where     train.py:31, rank 1",
        "  seen      a.weight  (rank 0)",
        "  expected  a gradient",
        "  fix       remove it",
        "            - a",
        "            + b",
        "  more      ddpdoctor explain DDP501",
    ]


def test_what_is_pasted_is_never_wrapped_and_long_lists_are_cut() -> None:
    """A command of 300 characters stays one line; the ninth piece of evidence is shown with --verbose."""
    command = "x" * 150 + " " + "y" * 150
    finding = replace(FINDING, fix=Fix("paste", command), evidence=(Evidence("one"),) * 12)
    result = _result(Status.FAILED, finding)
    short, long = (result_text(result, Style(60), verbose=verbose) for verbose in (False, True))

    assert command in short
    assert "... 4 more, --verbose shows them" in short
    assert long.count("seen") == 12


def test_the_end_is_short_and_says_what_would_show_more() -> None:
    """The verdict, how much was looked at, and a line for each thing that the user could give; no reason by itself."""
    absent = replace(_result(Status.NOT_RUN, reason="no --model given"), wants="model")
    other = _result(Status.NOT_RUN, reason="MASTER_ADDR is not set")
    lines = closing_text(Report((_result(Status.PASSED), absent, absent, other), (), 1.0)).splitlines()

    assert lines == [
        "Nothing wrong was found.",
        "1 of 4 checks ran, in 1.0 s. --verbose says why the others did not.",
        "To have more looked at, give:",
        "  --model FILE.py:NAME    a function that builds your model (2 checks)",
        "  -- torchrun train.py    your own command: its first steps are rehearsed",
    ]


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report((_result(Status.FAILED, FINDING, FINDING),)), "2 errors found."),
        (
            Report((_result(Status.FAILED, replace(FINDING, severity=Severity.NOTE)),)),
            "Nothing wrong was found; 1 note.",
        ),
        (Report((_result(Status.NOT_RUN),)), "Nothing was looked at."),
        (
            Report((_result(Status.NOT_RUN),), ("--model raised",)),
            "Nothing was looked at: 1 target could not be examined.",
        ),
        (
            Report((_result(Status.PASSED),), ("--model raised",)),
            "Incomplete: 1 target could not be examined; nothing wrong in what was looked at.",
        ),
        (
            Report((_result(Status.FAILED, FINDING), replace(_result(Status.NOT_RUN), wants=TIME))),
            "1 error found; incomplete: the time ran out before 1 check (--timeout).",
        ),
        (
            Report((_result(Status.CRASHED),)),
            "Incomplete: 1 check crashed, which is a fault of the check; nothing wrong in what was looked at.",
        ),
    ],
)
def test_the_verdict_is_a_plain_sentence(report: Report, said: str) -> None:
    """What was found, or what kept ddpdoctor from looking."""
    assert verdict(report) == said


def test_severity_alone_is_coloured() -> None:
    """Taken out, the colours leave the same text; without colour there is none."""
    result = _result(Status.FAILED, FINDING)
    report = Report((result, _result(Status.PASSED)))
    coloured, plain = (
        [result_text(result, style), closing_text(report, style)] for style in (Style(colour=True), PLAIN)
    )

    assert [re.findall("\x1b\\[31m\x1b\\[1m(.*?)\x1b\\[0m", text) for text in coloured] == [["error"], ["1 error"]]
    assert [re.sub("\x1b\\[[0-9]*m", "", text) for text in coloured] == plain


@pytest.mark.parametrize(
    ("report", "fail_on", "status"),
    [
        (Report(()), Severity.NOTE, 0),
        (Report((_result(Status.FAILED, FINDING),)), Severity.ERROR, 1),
        (Report((_result(Status.FAILED, replace(FINDING, severity=Severity.NOTE)),)), Severity.WARNING, 0),
        (Report((_result(Status.FAILED, FINDING),), ("fault",)), Severity.ERROR, 2),
        (Report((_result(Status.CRASHED),), ("fault",)), Severity.ERROR, 3),
        (Report((_result(Status.NOT_RUN), _result(Status.PASSED))), Severity.NOTE, 0),
        (Report((_result(Status.NOT_RUN),)), Severity.ERROR, 2),
        (Report((_result(Status.NOT_RUN),), rehearsed=Rehearsed("train", 2, 3, 12, 1.0)), Severity.ERROR, 0),
        (Report((_result(Status.PASSED), replace(_result(Status.NOT_RUN), wants=TIME))), Severity.ERROR, 2),
    ],
)
def test_exit_status(report: Report, fail_on: Severity, status: int) -> None:
    """0 nothing at the level, 1 findings, 2 an unusable target, nothing looked at, or too little time; 3 a crash."""
    assert report.exit_status(fail_on) == status


def test_a_finding_without_proof_or_fix_is_refused() -> None:
    """No evidence, no finding; no fix, no finding."""
    with pytest.raises(ValueError, match="evidence"):
        Finding("it is bad", (), Fix("mend it"))
    with pytest.raises(ValueError, match="fix"):
        Finding("it is bad", (Evidence("seen"),), Fix(""))


SECRETS = [
    "postgres://user:{}@db/x",
    "https://{}@github.com/a/b",
    "https://s3/x?X-Amz-Signature={}&a=1",
    "Authorization: Bearer {}",
    "WANDB_API_KEY={}",
    "hf_{}",
    "ghp_{}",
    "eyJhbGciOiJIUzI1NiJ9.{}.x",
]


@given(
    st.sampled_from(SECRETS), st.text("abcdefghijkmnopqrstuvwxyzABCDEFGH23456789", min_size=24, max_size=40), FINDINGS
)
def test_a_secret_reaches_no_report(shape: str, secret: str, finding: Finding) -> None:
    """Wherever a token or password stands, no reporter prints it."""
    assume(secret not in str(finding))  # where it stands alone, nothing shows that it is one
    text = shape.format(secret)
    finding = replace(finding, message=text, fix=Fix(text, text), evidence=(Evidence(text, text, text),))
    report = redacted(Report((_result(Status.FAILED, finding, reason=text),), (text,)))

    printed = as_json(report, Severity.NOTE, {}) + as_junit(report, Severity.NOTE) + closing_text(report)
    assert secret not in printed
    assert secret not in result_text(report.results[0], verbose=True)


@pytest.mark.parametrize(
    "text",
    [
        "layer.key.weight", "token_embedding.weight", "3000 tokens per second", "/data/keys/train.py:31", "7f3c9a1e5b",
        "tcp://10.0.0.1:29500", "MASTER_ADDR=node0", "q_proj.key = [4, 4]", "git@github.com:pytorch/pytorch.git",
    ],
)  # fmt: skip
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    """Keys of state dicts, paths, hashes and addresses are no secrets."""
    assert redact(text) == text


def test_variables_are_hidden_by_their_names() -> None:
    """A name that says secret hides the value; a name that only sounds alike does not."""
    environ = {
        "HF_TOKEN": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "TOKENIZERS_PARALLELISM": "c",
        "KEYBOARD": "d",
        "MONKEY": "e",
    }

    assert redact_environ(environ) == environ | {"HF_TOKEN": HIDDEN, "AWS_SECRET_ACCESS_KEY": HIDDEN}


@given(st.text())
def test_printable_keeps_ascii_and_hides_the_rest(text: str) -> None:
    """What is printable stays; nothing else gets through."""
    assert printable(printable(text)) == printable(text)
    assert printable("plain text") == "plain text"


@given(
    st.recursive(
        st.none() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner),
    )
)
def test_plain_makes_anything_json(value: object) -> None:
    """Infinities and keys that are numbers included."""
    json.dumps(plain(value), allow_nan=False)


def test_counts_are_those_of_the_findings() -> None:
    """The counts in JSON are of findings by severity and of checks by status."""
    counts = as_dict(Report((_result(Status.FAILED, FINDING, FINDING), _result(Status.PASSED))), Severity.ERROR, {})[
        "counts"
    ]

    assert (counts["error"], counts["failed"], counts["passed"]) == (2, 1, 1)


def test_notes_stand_after_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever was found first: a reader who stops after the first finding has read the worst."""
    note = _result(Status.FAILED, replace(FINDING, severity=Severity.NOTE, message="only a note"))
    error = _result(Status.FAILED, replace(FINDING, severity=Severity.ERROR, message="what is wrong"))
    show = Show("text", None, Severity.WARNING, verbose=False, quiet=False)

    show.result(note)
    show.result(error)
    show.report(Report((note, error)), {})

    said = capsys.readouterr().out
    assert said.index("what is wrong") < said.index("only a note") < said.index("1 error, 1 note found")
