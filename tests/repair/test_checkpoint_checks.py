"""The checks of checkpoints: what they say of files that real wrappers wrote, and that their fixes mend them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from helpers import CHECKS
from hypothesis import given, strategies as st

from ddpdoctor import load_state_dict
from ddpdoctor.checkpoint import Entry, StateDict, inspect, repair
from ddpdoctor.checkpoint.columns import by_columns
from ddpdoctor.checkpoint.compare import closest_difference, difference
from ddpdoctor.checkpoint.keys import WRAPPER_NAMES, WRAPPERS, Strip, assumed_strip, is_averaged, is_flat, wrappers_in
from ddpdoctor.facets import Check, NotRun
from ddpdoctor.findings import Finding, Severity

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

PREFIXES = {
    "module-prefix": "module",
    "orig-mod-prefix": "_orig_mod",
    "fsdp-prefix": "_fsdp_wrapped_module",
    "activation-checkpoint-prefix": "_checkpoint_wrapped_module",
    "lightning-prefix": "_forward_module",
}


@pytest.fixture(scope="module")
def area() -> dict[str, Check]:
    """Return the checks of checkpoints by their slug."""
    return {check.slug: check for check in CHECKS if check.area == "checkpoint"}


def small(width: int = 4) -> Any:
    """Build a model whose layers depend on their version: BatchNorm."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 2))


def exam(model: Any) -> Any:
    """Return of the examination of a model what these checks read."""
    return SimpleNamespace(
        target="train.py:build_model",
        state=tuple(Entry(key, tuple(value.shape), str(value.dtype)[6:]) for key, value in model.state_dict().items()),
    )


def findings(check: Check, path: Path, model: Any = None, jobs: Jobs | None = None) -> list[Finding]:
    """Run the facets of a check that have what they need, as the engine does."""
    offered = {"checkpoint": inspect(path), "model_given": model is not None, "jobs": jobs}
    if model is not None:
        offered["model"] = exam(model)
    return [finding for each in _examined(check, offered) for finding in each]


def _examined(check: Check, offered: dict[str, Any]) -> Iterator[list[Finding]]:
    for facet in check.facets:
        if set(facet.needs) <= offered.keys():
            yield list(facet.examine(**{name: offered[name] for name in facet.needs}))


def reports(area: dict[str, Check], path: Path, model: Any = None) -> dict[str, Severity | None]:
    """Return the slugs of the checks that find something, with the severity of their first finding."""
    said: dict[str, Severity | None] = {}
    for slug, check in area.items():
        if slug == "weights-only-refused":
            continue
        try:
            if found := findings(check, path, model):
                said[slug] = found[0].severity or check.severity
        except NotRun:
            continue
    return said


def save(path: Path, value: Any) -> Path:
    """Save by torch."""
    import torch

    torch.save(value, path)
    return path


def wrapped(segments: Sequence[str], model: Any) -> Any:
    """Hold a model as the wrappers of these names would, the first the outermost."""
    import torch

    for segment in reversed(segments):
        outer = torch.nn.Module()
        outer.add_module(segment, model)
        model = outer
    return model


def paste(finding: Finding, model: Any = None) -> None:
    """Do what the command of a fix does, with the model itself where it names the model's factory."""
    lines = finding.fix.command.splitlines()
    if len(lines) > 1:
        assert (lines[0], lines[-1]) == ("python3 - <<'END'", "END")
        exec("\n".join(lines[1:-1]), {})  # noqa: S102
        return
    words = shlex.split(lines[0])
    path, *options = words[2:]
    assert (words[:2], options[-2]) == (["ddpdoctor", "repair"], "-o")
    if "--model" in options:
        assert options[:2] == ["--model", "train.py:build_model"]
    strip = [value for option, value in pairwise(options) if option == "--strip"]
    repair(path, options[-1], model=model if "--model" in options else None, strip=strip)


@pytest.mark.parametrize("slug", PREFIXES)
def test_a_prefix_is_found_and_the_command_mends_it(tmp_path: Path, area: dict[str, Check], slug: str) -> None:
    """The file loads strictly after the pasted command, metadata and all; without a model it is a note."""
    import torch

    model = small()
    path = save(tmp_path / "last.pt", {"net": wrapped([PREFIXES[slug]], model).state_dict(), "epoch": 1})

    assert reports(area, path) == {slug: Severity.NOTE, "nested-state-dict": Severity.NOTE}
    assert reports(area, path, model) == {slug: Severity.ERROR, "nested-state-dict": Severity.NOTE}

    paste(findings(area[slug], path, model)[0], model)
    mended = torch.load(tmp_path / "last.bare.pt", weights_only=True)["net"]
    assert list(mended) == list(model.state_dict())
    assert mended._metadata.keys() >= model.state_dict()._metadata.keys()
    small().load_state_dict(mended)
    assert reports(area, tmp_path / "last.bare.pt", model) == {"nested-state-dict": Severity.NOTE}


def test_the_command_can_be_pasted_into_a_shell(tmp_path: Path, area: dict[str, Check]) -> None:
    """The command works as it is, also for a path that a shell would take apart."""
    path = save(tmp_path / "a 'b' $HOME.pt", wrapped(["module"], small()).state_dict())
    (finding,) = findings(area["module-prefix"], path)

    command = finding.fix.command.replace("ddpdoctor", f"{sys.executable} -m ddpdoctor", 1)
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    assert reports(area, tmp_path / "a 'b' $HOME.bare.pt", small()) == {}


@pytest.mark.parametrize("segments", [["module", "_orig_mod"], ["_orig_mod", "module"], ["module", "module"]])
def test_a_stack_is_reported_once_and_mended_whole(tmp_path: Path, area: dict[str, Check], segments: list[str]) -> None:
    """The outermost wrapper's check tells of the whole stack, and its command takes off all of it."""
    import torch

    model = small()
    path = save(tmp_path / "a'b.pt", wrapped(segments, model).state_dict())
    slug = next(slug for slug, segment in PREFIXES.items() if segment == segments[0])

    assert reports(area, path, model) == {slug: Severity.ERROR}
    (finding,) = findings(area[slug], path, model)
    assert ".".join(segments) in finding.message
    paste(finding, model)
    small().load_state_dict(torch.load(tmp_path / "a'b.bare.pt", weights_only=True))


def test_a_layer_that_is_called_module_is_no_prefix(tmp_path: Path, area: dict[str, Check]) -> None:
    """The model's own keys decide what is a prefix: one module. of two is taken off, or none."""
    import torch

    model = wrapped(["module"], small())
    bare = save(tmp_path / "bare.pt", model.state_dict())
    held = save(tmp_path / "held.pt", wrapped(["module"], model).state_dict())

    assert reports(area, bare, model) == {}
    assert reports(area, held, model) == {"module-prefix": Severity.ERROR}
    paste(findings(area["module-prefix"], held, model)[0], model)
    model.load_state_dict(torch.load(tmp_path / "held.bare.pt", weights_only=True))
    (note,) = findings(area["module-prefix"], bare)
    assert "assuming that no layer of the model itself is called module" in note.message


def test_a_wrapped_model_and_bare_keys(tmp_path: Path, area: dict[str, Check]) -> None:
    """The reverse, bare keys for a wrapped model, is told as that."""
    model = small()
    path = save(tmp_path / "last.pt", model.state_dict())

    (finding,) = findings(area["module-prefix"], path, wrapped(["module"], model))

    assert "keys of the model carry module." in finding.message
    assert "model.module.load_state_dict(state)" in finding.fix.diff


def test_a_mixed_file_loses_nothing(tmp_path: Path, area: dict[str, Check]) -> None:
    """Keys with and without the prefix are counted; where two would become one, no renaming is offered."""
    model = small()
    state = model.state_dict()
    mixed = {f"module.{key}" if key.startswith("0") else key: value for key, value in state.items()}
    path = save(tmp_path / "last.pt", mixed)
    both = save(tmp_path / "both.pt", {**mixed, **state})

    assert reports(area, path) == {}
    (finding,) = findings(area["module-prefix"], path, model)
    assert finding.message.startswith("2 of 9 keys")
    assert any("7 keys have none" in each.seen for each in finding.evidence)
    for found in findings(area["module-prefix"], both, model):
        assert not found.fix.command


def test_partial_wrappers_of_layers(tmp_path: Path, area: dict[str, Check]) -> None:
    """A wrapper inside, around some layers, is found and mended."""
    import torch

    model = small()
    inner = {key.replace("0.", "0._checkpoint_wrapped_module.", 1): value for key, value in model.state_dict().items()}
    path = save(tmp_path / "last.pt", inner)

    assert reports(area, path, model) == {"activation-checkpoint-prefix": Severity.ERROR}
    paste(findings(area["activation-checkpoint-prefix"], path, model)[0], model)
    small().load_state_dict(torch.load(tmp_path / "last.bare.pt", weights_only=True))


def test_an_averaged_model_is_not_taken_for_ddp(tmp_path: Path, area: dict[str, Check]) -> None:
    """The counter tells AveragedModel from DDP, also when the two are stacked; the line of the fix loads it."""
    from torch.optim.swa_utils import AveragedModel

    model = small()
    for name, inner in (("a", model), ("b", wrapped(["module"], model))):
        path = save(tmp_path / f"{name}.pt", AveragedModel(inner).state_dict())

        assert reports(area, path) == {"averaged-model-checkpoint": Severity.NOTE}
        assert reports(area, path, model) == {"averaged-model-checkpoint": Severity.ERROR}
        line = f'ddpdoctor.load_state_dict(model, "{path}")'
        assert f"+ {line}" in findings(area["averaged-model-checkpoint"], path, model)[0].fix.diff.splitlines()
        assert load_state_dict(small(), path).left_out == ("n_averaged",)


def test_an_averaged_model_is_healthy_for_an_averaged_model(tmp_path: Path, area: dict[str, Check]) -> None:
    """When the factory itself gives an AveragedModel, its file fits."""
    from torch.optim.swa_utils import AveragedModel

    model = AveragedModel(small())

    assert reports(area, save(tmp_path / "last.pt", model.state_dict()), model) == {}


def test_a_healthy_file_is_not_remarked_upon(tmp_path: Path, area: dict[str, Check]) -> None:
    """A state dict that the model loads gives no finding, with the model and without."""
    model = small()
    path = save(tmp_path / "last.pt", model.state_dict())

    assert reports(area, path) == {}
    assert reports(area, path, model) == {}


def test_another_network_is_told_by_shapes_and_names(tmp_path: Path, area: dict[str, Check]) -> None:
    """Width, missing layers and foreign layers are counted, with a table; prefixes are out of the way first."""
    import torch

    wide = save(tmp_path / "wide.pt", wrapped(["module"], small(8)).state_dict())
    other = save(tmp_path / "other.pt", torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3)).state_dict())
    short = save(tmp_path / "short.pt", small()[:2].state_dict())
    check = area["checkpoint-architecture-mismatch"]

    assert reports(area, wide, small()) == {
        "module-prefix": Severity.ERROR,
        "checkpoint-architecture-mismatch": Severity.ERROR,
    }
    (finding,) = findings(check, wide, small())
    assert "7 of another shape, 2 agree" in finding.message
    assert finding.table is not None
    assert finding.table.rows[0] == ("0.weight", "[8, 3]", "[4, 3]")
    assert "5 missing in the file" not in findings(check, short, small())[0].message
    assert "2 missing in the file, 7 agree" in findings(check, short, small())[0].message
    assert findings(check, other, small())


def test_a_part_of_a_larger_model_is_told_as_that(tmp_path: Path, area: dict[str, Check]) -> None:
    """A file of a module that holds the model, as Lightning's, loads after the lines of the fix; the reverse too."""
    import torch

    model, larger = small(), torch.nn.ModuleDict({"net": small(), "loss": torch.nn.Linear(1, 1)})
    path = save(tmp_path / "larger.pt", {"state_dict": larger.state_dict()})
    bare = save(tmp_path / "bare.pt", model.state_dict())

    (finding,) = findings(area["checkpoint-architecture-mismatch"], path, model)
    assert "with net. before them" in finding.message
    exec("\n".join(line[2:] for line in finding.fix.diff.splitlines()), {"model": model})  # noqa: S102
    (finding,) = findings(area["checkpoint-architecture-mismatch"], bare, larger)
    assert finding.fix.diff == '+ model.get_submodule("net").load_state_dict(state)'


def test_dropping_the_head_mends_a_head_that_differs(tmp_path: Path, area: dict[str, Check]) -> None:
    """When only few layers differ, the lines that drop them make the rest load."""
    import torch

    model = small()
    model[2] = torch.nn.Linear(4, 7)
    path = save(tmp_path / "last.pt", small().state_dict())

    (finding,) = findings(area["checkpoint-architecture-mismatch"], path, model)

    lines = [line[2:] for line in finding.fix.diff.splitlines() if line.startswith("+ ")]
    exec("\n".join(lines), {"state": torch.load(path, weights_only=True), "model": model})  # noqa: S102


def test_counters_of_old_versions_are_no_other_network(tmp_path: Path, area: dict[str, Check]) -> None:
    """Nothing is said where torch fills up num_batches_tracked, in a file without metadata; with it, loading fails."""
    state = small().state_dict()
    old = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    path = save(tmp_path / "old.pt", old)

    small().load_state_dict(old)
    assert reports(area, path, small()) == {}
    del state["1.num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        small().load_state_dict(state)
    (finding,) = findings(area["checkpoint-architecture-mismatch"], save(tmp_path / "new.pt", state), small())
    assert "BatchNorm" in finding.fix.summary


@pytest.mark.parametrize("both", [True, False])
def test_each_part_that_fits_is_named(both: bool, tmp_path: Path, area: dict[str, Check]) -> None:  # noqa: FBT001
    """A student and its average in one file: which one is meant is left to the user, and the fix says both."""
    state = small().state_dict()
    starts = ("student._orig_mod.", "teacher.module.")[: 1 + both]
    path = save(tmp_path / "last.ckpt", {start + key: value for start in starts for key, value in state.items()}
                | {"criterion.weight": state["0.bias"]})  # fmt: skip
    (finding,) = findings(area["checkpoint-architecture-mismatch"], path, small())

    assert (finding.ambiguity is not None) == both
    assert all(start in finding.fix.diff for start in starts)


def test_the_best_of_several_state_dicts_is_compared(tmp_path: Path, area: dict[str, Check]) -> None:
    """A generator and a discriminator in one file: the model is compared with the one that it is."""
    import torch

    model = small()
    path = save(tmp_path / "gan.pt", {"d": torch.nn.Linear(9, 9).state_dict(), "g": model.state_dict()})

    assert reports(area, path, model) == {"nested-state-dict": Severity.NOTE}
    assert 'ckpt["g"]' in findings(area["nested-state-dict"], path, model)[0].message


def test_weights_only_asks_the_installed_torch(tmp_path: Path, area: dict[str, Check], jobs: Jobs) -> None:
    """The names refused are those that torch itself lists; allowing them as told makes the file load."""
    import argparse

    import numpy as np
    import torch

    check = area["weights-only-refused"]
    value = {"weight": torch.zeros(1), "args": argparse.Namespace(a=1), "best": np.float64(2), "x": np.ones(2)}
    path = save(tmp_path / "last.pt", value)

    (finding,) = findings(check, path, jobs=jobs)

    for name in torch.serialization.get_unsafe_globals_in_checkpoint(path):
        assert name in finding.evidence[0].seen
    lines = [line[2:] for line in finding.fix.diff.splitlines() if line.startswith("+ ")]
    scope: dict[str, Any] = {"torch": torch}
    exec("\n".join(lines), scope)  # noqa: S102
    assert scope["ckpt"]["args"].a == 1
    assert findings(check, save(tmp_path / "plain.pt", {"w": torch.zeros(1), "args": {"a": 1}}), jobs=jobs) == []


@dataclass
class Harm:
    """What would write a file if it were unpickled."""

    path: str

    def __reduce__(self) -> Any:
        """Tell pickle to run a command."""
        import os

        return os.system, (f"touch {self.path}",)


def test_a_file_that_runs_commands_is_an_error(tmp_path: Path, area: dict[str, Check], jobs: Jobs) -> None:
    """A pickle that names os.system is reported as harmful; looking at it runs nothing."""
    path = save(tmp_path / "last.pt", {"x": Harm(str(tmp_path / "ran"))})

    (finding,) = findings(area["weights-only-refused"], path, jobs=jobs)

    assert finding.severity is Severity.ERROR
    assert "system" in finding.message
    assert not (tmp_path / "ran").exists()


def test_a_pickled_module_tells_its_class_and_how_to_keep_the_weights(tmp_path: Path, area: dict[str, Check]) -> None:
    """The command writes the state dict of the module in the file."""
    import torch

    path = save(tmp_path / "last.pt", {"model": small()})

    (finding,) = findings(area["pickled-module"], path)

    assert "torch.nn.modules.container.Sequential" in finding.message
    paste(finding)
    small().load_state_dict(torch.load(tmp_path / "last.state.pt", weights_only=True))


def test_parts_of_tensors_are_not_taken_for_weights(tmp_path: Path, area: dict[str, Check]) -> None:
    """A flat parameter is reported as one rank's part, and not as a prefix or another network as well."""
    import torch

    path = save(tmp_path / "last.pt", {"_fsdp_wrapped_module._flat_param": torch.zeros(30)})

    assert reports(area, path) == {"sharded-weights-as-whole": Severity.WARNING}
    assert reports(area, path, small()) == {"sharded-weights-as-whole": Severity.ERROR}


def test_safetensors_are_mended_as_safetensors(tmp_path: Path, area: dict[str, Check]) -> None:
    """The command works on a safetensors file as on any other."""
    header = b'{"module.a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)

    (finding,) = findings(area["module-prefix"], tmp_path / "a.safetensors")

    paste(finding)
    assert inspect(tmp_path / "a.bare.safetensors").state_dicts[0].keys == ("a",)


SEGMENTS = st.sampled_from(WRAPPERS)
NAMES = st.lists(
    st.lists(st.sampled_from(["a", "b", "0", "module_list"]), min_size=1, max_size=3).map(".".join),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(names=NAMES, stack=st.lists(SEGMENTS, max_size=3))
def test_any_stack_of_wrappers_is_found_again(names: list[str], stack: list[str]) -> None:
    """Whatever wraps a model, the difference is found to be just that, and taking it off gives the model's keys."""
    file = StateDict((), by_columns(Entry, (Entry(".".join([*stack, name]), (1,), "float32") for name in names)))
    model = [Entry(name, (1,), "float32") for name in names]

    found = difference(file, model)

    assert found.complete
    assert [found.file_strip(key) for key in file.keys] == names
    assert set(found.file_strip.segments) == set(stack)


@given(names=NAMES, stack=st.lists(st.sampled_from(WRAPPER_NAMES), max_size=3))
def test_without_a_model_certain_names_are_taken_off(names: list[str], stack: list[str]) -> None:
    """What nobody calls a layer of theirs is recognised without a model; bare keys stay as they are."""
    keys = [".".join([*stack, name]) for name in names]

    assert list(map(assumed_strip(keys), keys)) == names


def test_the_algebra_in_small() -> None:
    """The pure functions say what their names say."""
    assert wrappers_in("module._orig_mod.a.module.weight") == ("module", "_orig_mod", "module")
    assert wrappers_in("module") == ()
    assert Strip(("module",), ("_orig_mod",))("module.a._orig_mod.module.b") == "a.module.b"
    assert str(Strip(("module", "_orig_mod"))) == "module._orig_mod."
    assert is_flat("_fsdp_wrapped_module._flat_param")
    assert is_flat("flat_param_0")
    assert not is_flat("flat.weight")
    assert is_averaged(["n_averaged", "module.a"])
    assert not is_averaged(["n_averaged", "a"])
    assert closest_difference(SimpleNamespace(state_dicts=()), []) is None  # type: ignore[arg-type]
