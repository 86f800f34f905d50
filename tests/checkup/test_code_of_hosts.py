"""What hosts compare of the training's code: packages from elsewhere, and the variables that its files read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from helpers import CHECKS

from ddpdoctor.cluster.cluster import LAYOUT, Cluster, Joint
from ddpdoctor.cluster.compared.code import hashes
from ddpdoctor.cluster.compared.reads import NOT_SET, variables_read
from ddpdoctor.cluster.compared.settings import settings
from ddpdoctor.cluster.host import Host
from ddpdoctor.engine import evaluate
from ddpdoctor.findings import Severity
from ddpdoctor.registry import find


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a script beside a module of its own, which imports a package of PYTHONPATH as well."""
    for name in ("work", "libs/mylib/part", "libs/site-packages/installed"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work/train.py").write_text("import os, torch, own, installed, nowhere\nfrom mylib.part import x\n")
    (tmp_path / "work/own.py").write_text("")
    (tmp_path / "libs/own.py").write_text("other")
    (tmp_path / "libs/mylib/__init__.py").write_text("a = 1\n")
    (tmp_path / "libs/mylib/_version.py").write_text("made = 7\n")
    (tmp_path / "libs/mylib/part/__init__.py").write_text("x = 1\n")
    (tmp_path / "libs/site-packages/installed/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "libs")
    monkeypatch.syspath_prepend(tmp_path / "libs/site-packages")
    return tmp_path / "work/train.py"


def test_packages_from_elsewhere_are_compared(script: Path) -> None:
    """Neither what is installed, nor what lies beside the script, nor what a build makes."""
    found = hashes([str(script)])
    assert set(found) == {"train.py", "own.py", "mylib (imported): __init__.py", "mylib (imported): part/__init__.py"}


def told(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """Return what is said of the code of two hosts."""
    check = find(CHECKS, "code-differs-between-hosts")
    assert check is not None
    offers = {"cluster": Cluster((Host("a", code=first), Host("b", code=second)), 2)}
    found = evaluate(check, check.facets[0], offers.__getitem__).findings
    return [f"{each.message} {each.fix.command}" for each in found]


def test_a_package_that_differs_is_named() -> None:
    """One that a host has installed instead is no difference; a file that it lacks is one."""
    whole = {"train.py": "1", "mylib (imported): __init__.py": "2", "mylib (imported): part.py": "3"}
    assert told(whole, whole) == []
    assert told(whole, {"train.py": "1"}) == []
    (said,) = told(whole, whole | {"mylib (imported): part.py": "4"})
    assert said.startswith("mylib (imported): part.py differs")
    assert "import mylib; print(mylib.__file__)" in said
    (said,) = told(whole, {"train.py": "1", "mylib (imported): __init__.py": "2"})
    assert "missing on b" in said


def test_variables_that_the_files_read_are_told(script: Path) -> None:
    """By name alone; those of a rank or a host are its own; a secret, by its name or its form, is not sent."""
    script.write_text(
        'import os\na = os.environ.get("DIM", "3")\nb = os.environ["DEPTH"]\nc = os.getenv(\'WANDB_API_KEY\')\n'
        'd = os.environ["LOCAL_RANK"], os.environ["SLURM_JOB_ID"], os.environ[name]\ne = os.environ["DATA"]\n'
    )
    values = {"DIM": "48", "WANDB_API_KEY": "geheim", "DATA": "s3://me:geheim@store/rows"}
    found = variables_read([str(script)], values | {"LOCAL_RANK": "1", "OTHER": "2"})
    hidden = {
        name: f"sha256 {hashlib.sha256(values[name].encode()).hexdigest()[:12]}" for name in ("WANDB_API_KEY", "DATA")
    }
    assert found == {"DIM": "48", "DEPTH": NOT_SET} | hidden


def test_the_first_parameters_and_variables_that_differ_are_named() -> None:
    """Where no variable differs, and the code is the same, the code is not to be copied."""
    layouts = [f"2 parameters with {n} numbers, x\nin.weight ({n}, 4) float32\nout.bias (4,) float32" for n in (32, 48)]
    check = find(CHECKS, "model-differs-between-hosts")
    assert check is not None
    values: tuple[str, str]
    for values in (("32", "48"), ("32", "32")):
        hosts = tuple(
            Host("ab"[each], node=each, code={"net.py": "1"}, reads={"DIM": value, "SEED": "1"})
            for each, value in enumerate(values)
        )
        cluster = Cluster(hosts, 2, joint=tuple(Joint(each, "gloo", layouts[each], LAYOUT) for each in (0, 1)))
        offers = {"cluster": cluster, "jobs": None}
        (one,) = evaluate(check, check.facets[0], offers.__getitem__).findings
        assert "in.weight (48, 4) float32, and in.weight (32, 4) float32 on the others" in one.message
        assert ("read DIM, which differs between the hosts" in one.message) == (values[0] != values[1])
        assert "SEED" not in one.message
        assert "rsync" not in one.fix.command


def test_settings_are_read_from_options_and_files(tmp_path: Path) -> None:
    """Plain values alone: no path, no device, nothing that a host has of its own, no secret."""
    (tmp_path / "base.yaml").write_text(
        "model:\n  hidden: 16   # wide\n  kind: mlp\ndata_dir: rows\nnum_workers: 4\nstore: s3://me/rows\n"
        "api_key: geheim\n"
    )
    (tmp_path / "ds.json").write_text('{"zero": {"stage": 2,\n "offload": {"device": "cpu"}}, "betas": [0.9, 0.95]}')
    (tmp_path / "train.py").write_text('main("base.yaml", "missing.yaml")\n')
    named = ["torchrun", "--nnodes=2", str(tmp_path / "train.py"), "--lr=0.1", "--amp", "--out", "x"]
    assert settings([*named, "--deepspeed_config", str(tmp_path / "ds.json")]) == {
        "option --lr": "0.1", "option --amp": "given",
        "base.yaml: model.hidden": "16", "base.yaml: model.kind": "mlp",
        "ds.json: zero.stage": "2", "ds.json: betas[0]": "0.9", "ds.json: betas[1]": "0.95",
    }  # fmt: skip


def test_settings_that_differ_are_told_with_their_values() -> None:
    """Another batch of a smaller host is a note; a host that has no such file, or was told of no script, is none."""
    check = find(CHECKS, "code-differs-between-hosts")
    assert check is not None

    def compared(first: dict[str, str], second: dict[str, str]) -> list[tuple[str, Severity | None]]:
        code = {"train.py": "1"}
        hosts = (Host("a", code=code, settings=first), Host("b", code=code, settings=second))
        offers = {"cluster": Cluster(hosts, 2)}
        results = evaluate(check, check.facets[1], offers.__getitem__).findings
        return [(each.message, each.severity) for each in results]

    first = {"c.yaml: hidden": "16", "c.yaml: batch_size": "8", "option --lr": "1"}
    assert compared(first, first) == []
    assert compared(first, {"option --lr": "1"}) == []
    assert compared(first, first | {"c.yaml: hidden": "32"}) == [
        ("c.yaml: hidden differs: 16 on a; 32 on b", Severity.WARNING)
    ]
    assert compared(first, first | {"c.yaml: batch_size": "4"})[0][1] is Severity.NOTE
    assert "option --lr differs: 1 on a; not set on b" in compared(first, dict(list(first.items())[:2]))[0][0]
