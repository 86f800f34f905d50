from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import ROOT

from ddpdoctor.areas import AREAS
from ddpdoctor.declaration import LoadError
from ddpdoctor.facets import Check, Instrument
from ddpdoctor.registry import find, load_built_in, load_checks, load_linting
from ddpdoctor.selftest.result import fixture

ALL = load_checks()


def test_every_file_of_the_checks_folder_is_a_check() -> None:
    """No file is silently left out, in any area."""
    shared = "_"  # begins the name of a module, or of a room, that several checks read
    paths = [path.relative_to(ROOT / "checks") for path in (ROOT / "checks").rglob("*.py")]
    files = {path.stem.replace("_", "-") for path in paths if not any(part.startswith(shared) for part in path.parts)}

    assert {check.slug for check in ALL} == files
    assert {check.area for check in ALL} == {area.name for area in AREAS}


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.slug)
class TestEachCheck:
    """What holds for every check."""

    def test_its_page_tells_more_than_its_title(self, check: Check) -> None:
        """The page says what happens, how to be sure and for which versions, without hedging."""
        assert len(check.page.split()) >= 60
        assert not re.search(r"\b(please|something went wrong)\b", check.page, re.IGNORECASE)
        assert re.search(r"torch|NCCL|NVML|Linux|PyTorch|CUDA", check.page)

    def test_its_page_names_other_checks_by_their_slugs(self, check: Check) -> None:
        """A page is printed: a link would be shown as it is written, and a code says nothing."""
        assert not re.search(r"\]\(|\bDDP\d", check.page)

    def test_it_has_a_broken_case_and_a_healthy_twin_for_each_instrument(self, check: Check) -> None:
        """Both twins are there: scripts where something is run, logs where only a log can show it."""
        run = check.of(Instrument.PROBE) or check.of(Instrument.WATCH)
        for twin in ("broken", "healthy"):
            assert not run or fixture(check, f"{twin}.py").is_file()
            assert not check.of(Instrument.LOG) or fixture(check, f"{twin}.log").is_file()

    def test_code_and_slug_find_it(self, check: Check) -> None:
        """Users type either, in any case."""
        assert find(ALL, check.code.lower()) is check
        assert find(ALL, check.slug.upper()) is check


def test_every_fixture_folder_belongs_to_a_check() -> None:
    """No broken case is left from a check that is gone."""
    folders = {path.parent.name.replace("_", "-") for path in (ROOT / "fixtures").glob("*/broken.*")}

    assert folders == {check.slug for check in ALL}


GOOD = '''
    """Title.

    ## What happens

    It breaks.

    ## How to be sure

    Look.

    ## How to mend it

    Mend it.

    ## Versions and sources

    All versions.
    """
    from ddpdoctor.check import Ailment, Severity, lint, log_pattern, probe, watch

    AILMENT = Ailment("{code}", Severity.NOTE)

    @probe
    def at_the_checkup(facts): yield from ()

    @watch(ValueError)
    def in_training(event): yield from ()

    @lint
    def in_source(script, project): yield from ()

    @log_pattern("Expected to have finished", supersedes={supersedes})
    def in_logs(record): yield from ()
'''


def good(code: str = "ACME001", supersedes: tuple[str, ...] = ()) -> str:
    """Return the source of a check that loads."""
    return GOOD.format(code=code, supersedes=supersedes)


def claiming(decide: str = "def here(event): return Kind.ONE", member: str = "Kind.ONE, Kind.TWO") -> str:
    """Return the source of a check that claims members of a family."""
    return good() + textwrap.indent(
        "import enum\nfrom ddpdoctor.check import Claim\n\n"
        f"class Kind(enum.Enum):\n    ONE = 1\n    TWO = 2\n\n{decide}\n\n"
        f"@watch(ValueError, claim=Claim(here, ({member},)))\ndef of_a_family(event): yield from ()\n",
        "    ",
    )


HANG = """
    from ddpdoctor.checks.collectives.hangs._hangs import Hang, on_hang

    @on_hang(Hang.SAME)
    def in_a_hang(event): yield from ()
"""


def _plugin(folder: Path, sources: dict[str, str]) -> None:
    """Install a package of checks under the entry-point group, as a third party would."""
    package = folder / "acme_checks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, source in sources.items():
        (package / f"{name}.py").write_text(textwrap.dedent(source))
    metadata = folder / "acme-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[ddpdoctor.checks]\nacme = acme_checks\n")


@pytest.fixture
def plugin_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the path, and forget its modules afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("acme_checks")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_a_third_partys_check_with_facets_of_all_instruments_loads(plugin_path: Path) -> None:
    """The entry-point group works, and the shape takes all instruments."""
    _plugin(plugin_path, {"broken_thing": good()})
    found = find(load_checks(), "broken-thing")

    assert found is not None
    assert (found.code, found.area, found.title) == ("ACME001", "acme_checks", "Title")
    assert {facet.instrument for facet in found.facets} == set(Instrument)
    assert found.of(Instrument.WATCH)[0].subject is ValueError
    assert found.of(Instrument.PROBE)[0].needs == ("facts",)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_module\n", "no_such_module"),
        ("1/0\n", "ZeroDivisionError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (good("DDP1"), "has the code 'DDP1'"),
        (good("DDP701"), "both claim DDP701"),
        (good().replace("Title.", "Title"), "docstring"),
        (good().replace("## How to be sure", "Sure"), "sections"),
        (good().replace("AILMENT = ", "AILMENTS = None, "), "0 ailments"),
        (
            good().replace("(script, ", "(skript, "),
            r"unknown parameter 'skript' \(.*broken_thing.py:\d+\): lint facets",
        ),
        (good().replace("(facts)", "(fact)"), r"unknown parameter 'fact' \(.*broken_thing.py:\d+\): probe facets"),
        (good(supersedes=("no-such-check",)), "supersedes no-such-check"),
        (good(supersedes=("broken-thing",)), "in a circle"),
        (good(supersedes=("collective-timeout",)), "collective-timeout, which no log names as a cause"),
        (good(supersedes=("gpu-lost",)), "gpu-lost, which no log names as a cause"),
        (good() + HANG, "collective_timeout both claim Hang.SAME"),
        (claiming(member="Kind.ONE"), "no check claims Kind.TWO of acme_checks.broken_thing"),
        (claiming("def here(evnt): return Kind.ONE"), r"unknown parameter 'evnt' \(.*broken_thing.py:\d+\): watch"),
    ],
)
def test_a_check_that_does_not_load_is_an_error_that_names_it(plugin_path: Path, source: str, problem: str) -> None:
    """A faulty check is never left out in silence."""
    _plugin(plugin_path, {"broken_thing": source})

    with pytest.raises(LoadError, match=problem) as caught:
        load_checks()
    assert "acme_checks" in str(caught.value)


def test_nothing_of_torch_is_imported_by_the_checks() -> None:
    """Loading every check and the command line leaves torch and numpy out."""
    program = (
        "import sys; from ddpdoctor.registry import load_checks; import ddpdoctor.cli; load_checks(); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_checks_are_loaded_once(plugin_path: Path) -> None:
    """What was prepared for them in a fork server holds in its ranks; a plug-in that was added since is seen."""
    assert load_checks() is load_checks()
    assert load_built_in() is load_built_in()
    before = len(load_checks())
    _plugin(plugin_path, {"broken_thing": good()})

    assert len(load_checks()) == before + 1


def test_the_checks_that_read_source_are_loaded_alone() -> None:
    """They are those of all checks that have the facet, found by the text of their files."""
    assert [each.code for each in load_linting()] == [each.code for each in load_checks() if each.of(Instrument.LINT)]


def test_lint_loads_no_events_and_leaves_none_half_made() -> None:
    """Who loads the checks of lint first, and all of them after it, has the events of the watch whole."""
    program = (
        "import sys; from ddpdoctor.registry import load_checks, load_linting; load_linting(); "
        "assert 'ddpdoctor.watch.events' not in sys.modules; "
        "from ddpdoctor.check import Unseen; "
        "kinds = [facet.subject for check in load_checks() for facet in check.facets]; "
        "sys.exit(any(isinstance(kind, Unseen) for kind in kinds) or 'ddpdoctor.watch.events' not in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
