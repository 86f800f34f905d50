"""Which dicts of a checkpoint a repair touches: state dicts of models, and of them only those that are meant."""

from __future__ import annotations

import copy
import importlib
import json
import shlex
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import checkpoints
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings, strategies as st

from ddpdoctor import BadTarget, checkpoint, load_state_dict
from ddpdoctor.cli import cli

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("UserWarning", "FutureWarning", "DeprecationWarning")
]
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Location = tuple[str | int, ...]


def run(*args: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, [str(each) for each in args], catch_exceptions=False)


def net() -> Any:
    """Build a bare model with buffers."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def parallel(model: Any) -> Any:
    """Wrap a model; DataParallel gives the keys that DistributedDataParallel gives."""
    import torch

    return torch.nn.DataParallel(model)


def quantised(*, seed: int = 0) -> Any:
    """Build a quantised model, whose state has dtypes and packed weights beside its tensors."""
    import torch

    torch.manual_seed(seed)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    quantize: Any = torch.ao.quantization.quantize_dynamic
    return quantize(plain, {torch.nn.Linear})


def trained() -> tuple[Any, Any]:
    """Build a model and its optimizer, which has a state."""
    import torch

    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(5, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder: Path, value: Any, name: str = "last.pt") -> Path:
    """Save by torch."""
    import torch

    torch.save(value, folder / name)
    return folder / name


def load(path: Path) -> Any:
    """Load by torch, everything."""
    import torch

    return torch.load(path, weights_only=False)


def training_state() -> dict[str, Any]:
    """Return what a training saves: besides the model there are tensors of other kinds."""
    import torch

    model, optimizer = trained()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng_states": {"cpu": torch.get_rng_state(), "cuda": torch.get_rng_state()},
        "metrics": {"loss": torch.tensor(0.5), "accuracy": torch.tensor(0.25)},
        "callbacks": {"best_k_models": {"/runs/epoch=3.ckpt": torch.tensor(0.5)}, "best": torch.tensor(0.5)},
        "step": 3,
        "best": 0.5,
        "scale": torch.tensor(65536.0),
    }


@pytest.mark.parametrize(
    ("options", "front"), [({"to": "ddp"}, "module."), ({"add": "net"}, "net."), ({"regex": [("^", "n.")]}, "n.")]
)
def test_the_model_of_a_training_state_alone_is_renamed(tmp_path: Path, options: Any, front: str) -> None:
    """States of random generators, measures, optimizers and plain values beside the model stay bit for bit."""
    state = training_state()
    checkpoint.repair(save(tmp_path, state), tmp_path / "new.pt", **options)

    new = load(tmp_path / "new.pt")
    assert list(new["model"]) == [front + key for key in state["model"]]
    for each in state:
        if each != "model":
            assert checkpoints.words(new[each]) == checkpoints.words(state[each])
    if front == "module.":
        parallel(net()).load_state_dict(new["model"])


@pytest.mark.parametrize("plain", [False, True])
def test_a_quantised_net_keeps_nothing_behind(tmp_path: Path, plain: bool) -> None:  # noqa: FBT001
    """What is no tensor goes with its layer, off and on, with ``_metadata`` and without; torch loads it strictly."""
    state = parallel(quantised()).state_dict()
    path = save(tmp_path, dict(state) if plain else state)
    done = checkpoint.repair(path, tmp_path / "bare.pt")
    checkpoint.repair(tmp_path / "bare.pt", tmp_path / "again.pt", to="ddp")

    bare, again = load(tmp_path / "bare.pt"), load(tmp_path / "again.pt")
    assert list(bare) == list(quantised().state_dict())
    assert list(again) == list(state)
    assert done.changed == done.state_dicts[0].total == len(state)
    if not plain:  # these layers load by their versions alone
        quantised(seed=1).load_state_dict(bare)
        parallel(quantised(seed=1)).load_state_dict(again)


@pytest.mark.parametrize("shapes_alone", [False, True])
def test_a_quantised_net_gets_the_names_of_a_model(tmp_path: Path, shapes_alone: bool) -> None:  # noqa: FBT001
    """A model's names are found for it, also where its tensors alone are known, as the command line has them."""
    import torch

    state = parallel(quantised()).state_dict()
    tensors = [
        (key, tuple(value.shape)) for key, value in quantised().state_dict().items() if isinstance(value, torch.Tensor)
    ]
    model = tensors if shapes_alone else quantised(seed=1)
    checkpoint.repair(save(tmp_path, state), tmp_path / "new.pt", model=model)
    load_state_dict(quantised(seed=1), tmp_path / "new.pt") if not shapes_alone else None

    quantised(seed=1).load_state_dict(load(tmp_path / "new.pt"))


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_no_tensor_in_shards(tmp_path: Path, in_place: bool) -> None:  # noqa: FBT001
    """In a checkpoint of several files, too, it goes with its layer, listed in the index or not."""
    folder = tmp_path / "shards"
    folder.mkdir()
    state = parallel(quantised()).state_dict()
    parts = [dict(list(state.items())[:3]), dict(list(state.items())[3:])]
    for number, each in enumerate(parts):
        save(folder, each, f"{number}.bin")
    index = {
        key: f"{number}.bin" for number, each in enumerate(parts) for key in each if "_packed_params.dtype" not in key
    }
    (folder / "model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    out = folder if in_place else tmp_path / "new"
    checkpoint.repair(folder, None if in_place else out, in_place=in_place)

    bare = {key: value for number in range(2) for key, value in load(out / f"{number}.bin").items()}
    assert list(bare) == list(quantised().state_dict())
    told = json.loads((out / "model.bin.index.json").read_text())["weight_map"]
    assert told == {key.removeprefix("module."): name for key, name in index.items()}


@pytest.mark.parametrize("value", [{1, 2}, slice(1, 2), [1], "text", 3, None, ("a", 1)], ids=repr)
def test_any_value_goes_with_its_layer(tmp_path: Path, value: Any) -> None:
    """Whatever a layer keeps beside its tensors: its key gets what theirs get."""
    state: Any = OrderedDict(parallel(net()).state_dict())
    state.update({"module.0.kept": value, "module.kept": value})
    checkpoint.repair(save(tmp_path, state), tmp_path / "bare.pt")
    checkpoint.repair(tmp_path / "bare.pt", tmp_path / "again.pt", rename=[("0", "body")])

    bare = load(tmp_path / "bare.pt")
    assert list(bare) == [key.removeprefix("module.") for key in state]
    assert (bare["0.kept"], bare["kept"]) == (value, value)
    assert load(tmp_path / "again.pt")["body.kept"] == value


def test_plain_values_beside_the_weights_stay(tmp_path: Path) -> None:
    """A step and a score that were put into the state dict are no part of a layer, and the repair says so."""
    state = net().state_dict()
    state |= {"step": 3, "best": 0.5}
    said = run("repair", save(tmp_path, state), "--to", "ddp", "-o", tmp_path / "new.pt")

    assert list(load(tmp_path / "new.pt")) == [f"module.{key}" for key in net().state_dict()] + ["step", "best"]
    assert "step, best belong to no layer: not renamed" in said.output


def test_a_tensor_of_one_number_is_taken_for_a_buffer_and_that_is_told(tmp_path: Path) -> None:
    """A model can have a buffer `step`; a training can have put one beside its weights: the file does not tell."""
    import torch

    state = net().state_dict() | {"step": torch.tensor(3), "logit_scale": torch.tensor(0.5)}
    said = run("repair", save(tmp_path, state), "--to", "ddp", "-o", tmp_path / "new.pt").output

    assert "module.step" in load(tmp_path / "new.pt")
    assert "assumed that step is a buffer of the model itself" in said
    assert "logit_scale is" not in said


def test_one_number_beside_one_tensor(tmp_path: Path) -> None:
    """A state dict of few tensors with a number beside them is one; what it is called after the repair is seen."""
    import torch

    path = save(tmp_path, {"module.weight": torch.ones(2), "epoch": 1, "a": 1, "b": 2})
    checkpoint.repair(path, in_place=True)
    assert list(load(path)) == ["weight", "epoch", "a", "b"]
    checkpoint.undo(path)
    assert list(load(path)) == ["module.weight", "epoch", "a", "b"]
    assert checkpoint.inspect(save(tmp_path, {"weight": torch.ones(2), "epoch": 1})).state_dicts


PLACES: list[Location] = [("netG",), ("net", "d"), ("a.b", "c"), ("many", 0), ("it's ü",)]


def gan() -> dict[str, Any]:
    """Return a checkpoint of several models, at PLACES of every kind."""
    return {
        "netG": net().state_dict(),
        "net": {"d": dict(net().state_dict())},
        "a.b": {"c": net().state_dict()},
        "many": [net().state_dict()],
        "it's ü": net().state_dict(),
    }


@pytest.mark.parametrize("options", [["--to", "ddp"], ["--add", "x"], ["--map", "0=body"], ["--regex", "0=body"]])
def test_of_several_models_one_must_be_meant(tmp_path: Path, options: list[str]) -> None:
    """A rule for any keys does nothing until it is told for which model; what it offers can be pasted."""
    state = gan()
    path = save(tmp_path, state)
    before = path.read_bytes()
    said = run("repair", path, *options, "--in-place")
    assert said.exit_code == 2
    assert path.read_bytes() == before
    offered = said.output.partition("meant: ")[2].partition(" and 1 more")[0]
    words = shlex.split(offered.replace(", --at", " --at"))
    assert words[::2] == ["--at"] * 4
    for number, place in enumerate([*words[1::2], *('ckpt["net"]["d"]', "many.0", "it's ü")]):
        out = tmp_path / f"{number}.pt"
        assert run("repair", path, *options, "--at", place, "-o", out).exit_code == 0
        new = load(out)
        changed = [at for at in PLACES if list(part(new, at)) != list(part(state, at))]
        assert len(changed) == 1
        assert checkpoints.words(list(part(new, changed[0]).values())) == checkpoints.words(
            list(part(state, changed[0]).values())
        )


def part(value: Any, location: Location) -> Any:
    """Go to a location."""
    for step in location:
        value = value[step]
    return value


def test_several_places_and_the_root(tmp_path: Path) -> None:
    """--at is repeatable, ``.`` is the root, and of what is not meant not even the prefix comes off."""
    path = save(tmp_path, gan())
    out = tmp_path / "new.pt"
    assert run("repair", path, "--to", "ddp", "--at", "netG", "--at", "net.d", "-o", out).exit_code == 0
    new = load(out)
    assert [next(iter(part(new, at))) for at in PLACES] == [
        "module.0.weight",
        "module.0.weight",
        *["0.weight"] * 3,
    ]

    assert run("repair", out, "--at", "netG", "--in-place").exit_code == 0
    assert [next(iter(part(load(out), at))) for at in PLACES[:2]] == ["0.weight", "module.0.weight"]

    root = save(tmp_path, net().state_dict(), "root.pt")
    assert run("repair", root, "--to", "ddp", "--at", ".", "--in-place").exit_code == 0
    assert next(iter(load(root))) == "module.0.weight"
    nowhere = run("repair", path, "--to", "ddp", "--at", "nowhere", "--in-place")
    assert (nowhere.exit_code, "there is no state dict at nowhere; it has --at netG" in nowhere.output) == (2, True)


def averaged() -> Any:
    """Return the state of an average, and nothing else."""
    import torch

    return torch.optim.swa_utils.AveragedModel(net()).state_dict()


def half(value: Any) -> Any:
    """Take the prefix off some keys alone, as a loop with a mistake does."""
    return {key.removeprefix("module.") if "0." in key else key: each for key, each in value.items()}


def flat() -> Any:
    """Return what FSDP keeps of a rank, without the original parameters."""
    import torch

    return {"_fsdp_wrapped_module._flat_param": torch.ones(10), "_fsdp_wrapped_module.0._flat_param": torch.ones(10)}


def unversioned() -> Any:
    """Return a plain dict of a model with a layer that is called module."""
    return dict(layered().state_dict())


def layered() -> Any:
    """Build a model with a layer that is really called module, and another one."""
    import torch

    model = torch.nn.Module()
    model.module, model.head = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    return model


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an average": (averaged, "state of an AveragedModel"),
    "an average in a training state": (lambda: {"ema": averaged(), "step": 3}, 'ckpt["ema"] is left alone'),
    "flat parameters": (flat, "flat parameters of FSDP"),
    "half a prefix": (lambda: half(parallel(net()).state_dict()), "module. is before 5 of 7 keys, not before 0.weight"),
    "half a prefix in one of two": (
        lambda: {"a": parallel(net()).state_dict(), "b": half(parallel(net()).state_dict())},
        'ckpt["b"]: module. is before 5 of 7 keys',
    ),
    "two that would get one name": (
        lambda: {**net().state_dict(), **parallel(net()).state_dict()},
        "0.bias is there with it and without it",
    ),
    "nobody vouches for a layer called module": (unversioned, "--strip module. takes it off where it is"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("how", [[], ["--to", "compile"]])
def test_a_refusal_is_a_refusal(tmp_path: Path, name: str, how: list[str]) -> None:
    """Exit status 2, in place and into an output, with the reason; no file is written, none is changed."""
    make, words = REFUSED[name]
    path = save(tmp_path, make())
    before = path.read_bytes()
    if how and "two" in name:
        how = [*how, "--at", "a"] if "of two" in name else how
    for way in (["--in-place"], ["-o", tmp_path / "new.pt"], ["--dry-run"]):
        said = run("repair", path, *way, *how)
        if "--at" in how:
            assert said.exit_code == 0  # the sound one alone was asked for
            checkpoint.undo(path) if way == ["--in-place"] else (tmp_path / "new.pt").unlink(missing_ok=True)
        else:
            assert said.exit_code == 2, said.output
            assert words in said.output
            assert len(said.output.splitlines()) == 1
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == ["last.pt"]


def test_an_average_beside_a_model_stays(tmp_path: Path) -> None:
    """What is mended is mended, and what is left alone is told."""
    import torch

    state = {"model": parallel(net()).state_dict(), "ema": averaged()}
    said = run("repair", save(tmp_path, state), "-o", tmp_path / "new.pt")

    assert said.exit_code == 0
    assert 'ckpt["ema"]: left alone: it is the state of an AveragedModel' in said.output
    net().load_state_dict(load(tmp_path / "new.pt")["model"])
    torch.optim.swa_utils.AveragedModel(net()).load_state_dict(load(tmp_path / "new.pt")["ema"])


@pytest.mark.parametrize("wrapper", ["module", "_orig_mod", "_orig_mod.module"])
def test_a_wrapper_within_an_average_comes_off(tmp_path: Path, wrapper: str) -> None:
    """What an AveragedModel has averaged was wrapped: its own ``module.`` stays, and its counter."""
    import torch

    bare = net().state_dict()
    keys = [(f"module.{wrapper}.{key}", value) for key, value in bare.items()]
    path = save(tmp_path, {"ema": OrderedDict([("n_averaged", torch.tensor(4)), *keys]), "step": 3})
    seen = run("inspect", path).output
    done = run("repair", path, "-o", tmp_path / "new.pt")

    assert "the first module. and n_averaged are its own" in " ".join(seen.split())
    assert f"taken off ddpdoctor repair {path}" in seen.replace("\n", "")
    assert (done.exit_code, "left alone" in done.output) == (0, False)
    average = torch.optim.swa_utils.AveragedModel(net())
    average.load_state_dict(load(tmp_path / "new.pt")["ema"])
    assert int(average.n_averaged) == 4


def test_an_average_around_a_layer_that_is_called_so_stays(tmp_path: Path) -> None:
    """A name that one part alone has is a layer's."""
    import torch

    average = torch.optim.swa_utils.AveragedModel(layered()).state_dict()
    state = {"ema": average, "model": parallel(net()).state_dict()}
    said = run("repair", save(tmp_path, state), "-o", tmp_path / "new.pt")

    assert 'ckpt["ema"]: left alone' in said.output
    assert list(load(tmp_path / "new.pt")["ema"]) == list(average)


def test_numbers_of_parameters_that_are_text_are_told(tmp_path: Path) -> None:
    """So does torch's dcp_to_torch leave them, and an optimizer's load_state_dict takes none of them."""
    import torch

    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    whole = run("inspect", save(tmp_path, {"optimizer": state})).output
    state["state"] = {str(number): each for number, each in state["state"].items()}
    said = run("inspect", save(tmp_path, {"optimizer": state})).output

    assert "numbers of parameters" not in whole
    assert 'ckpt["optimizer"] has the numbers of parameters as text' in said
    fresh = torch.optim.Adam(net().parameters())
    fresh.load_state_dict(state)
    assert not any(fresh.state[each] for each in fresh.param_groups[0]["params"])


def test_metadata_vouch_for_a_layer_called_module(tmp_path: Path) -> None:
    """A layer that is really called module keeps its name, and gets prefixes as all others do."""
    path = save(tmp_path, layered().state_dict())
    kept = run("repair", path, "-o", tmp_path / "kept.pt")
    checkpoint.repair(path, tmp_path / "ddp.pt", to="ddp")
    checkpoint.repair(tmp_path / "ddp.pt", tmp_path / "bare.pt")

    assert kept.exit_code == 0
    assert "taken for a layer that is called module" in kept.output
    for name in ("kept.pt", "bare.pt"):
        layered().load_state_dict(load(tmp_path / name))
    parallel(layered()).load_state_dict(load(tmp_path / "ddp.pt"))


@pytest.fixture
def process_group() -> Iterator[None]:
    """Be the only rank of a job."""
    dist: Any = importlib.import_module("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("flattened", [False, True])
@pytest.mark.usefixtures("process_group")
def test_an_optimizer_kept_by_names_loads(tmp_path: Path, flattened: bool) -> None:  # noqa: FBT001
    """It loads by torch's own function beside the model that was given wrappers' names, and follows other new names."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.nn.parallel import DistributedDataParallel

    options = StateDictOptions(flatten_optimizer_state_dict=flattened)
    model, optimizer = trained()
    weights, state = get_state_dict(model, optimizer, options=options)
    path = save(tmp_path, {"model": weights, "optimizer": state})
    checkpoint.repair(path, tmp_path / "ddp.pt", to="ddp")
    checkpoint.repair(path, tmp_path / "named.pt", rename=[("0", "first")])

    new = load(tmp_path / "ddp.pt")
    wrapped = DistributedDataParallel(net())
    adam = torch.optim.Adam(wrapped.parameters())
    assert list(new["model"]) == list(wrapped.state_dict())
    wrapped.load_state_dict(new["model"])
    set_state_dict(
        wrapped, adam, model_state_dict=weights, optim_state_dict=copy.deepcopy(new["optimizer"]), options=options
    )
    assert checkpoints.words(adam.state_dict()["state"]) == checkpoints.words(optimizer.state_dict()["state"])

    named = torch.nn.Sequential(OrderedDict(zip(("first", "1"), net(), strict=True)))
    adam = torch.optim.Adam(named.parameters())
    new = load(tmp_path / "named.pt")
    set_state_dict(
        named, adam, model_state_dict=new["model"], optim_state_dict=copy.deepcopy(new["optimizer"]), options=options
    )
    assert checkpoints.words(adam.state_dict()["state"]) == checkpoints.words(optimizer.state_dict()["state"])


def test_a_nested_flattened_state_finds_its_parameter(tmp_path: Path) -> None:
    """The longest name of a parameter before the state counts, however deep the state is nested."""
    import torch

    model = {"a.b": torch.ones(2), "a.b.c": torch.ones(2)}
    state = {
        "state.a.b.c.moments.first": torch.ones(2),
        "state.a.b.c.moments.deep.second": torch.ones(2),
        "state.a.b.step": torch.tensor(1.0),
        "param_groups.a.b.lr": 0.1,
        "param_groups.a.b.c.betas": (0.9, 0.99),
    }
    path = save(tmp_path, {"model": model, "optimizer": state})
    checkpoint.repair(path, in_place=True, regex=[(r"^a\.b\.c$", "x"), (r"^a\.b$", "y")])

    assert list(load(path)["optimizer"]) == [
        "state.x.moments.first",
        "state.x.moments.deep.second",
        "state.y.step",
        "param_groups.y.lr",
        "param_groups.x.betas",
    ]


def test_an_optimizer_of_two_models_is_a_doubt(tmp_path: Path) -> None:
    """Where two models have an optimizer's names, and one of them is renamed, nobody knows whose it is: refused."""
    model, optimizer = trained()
    names = [name for name, _ in model.named_parameters()]
    kept = optimizer.state_dict()
    kept["state"] = {name: kept["state"][number] for number, name in enumerate(names)}
    kept["param_groups"][0]["params"] = names
    path = save(tmp_path, {"model": model.state_dict(), "ema": dict(model.state_dict()), "optimizer": kept})
    with pytest.raises(BadTarget, match=r'ckpt\["optimizer"\] is kept by names that .* have'):
        checkpoint.repair(path, in_place=True, rename=[("0", "x")], at=["model"])

    checkpoint.repair(path, in_place=True, rename=[("0", "x")], at=["model", "ema"])

    assert load(path)["optimizer"]["param_groups"][0]["params"] == ["x.weight", "x.bias", "1.weight", "1.bias"]


NAMES = st.sampled_from(["fc", "conv", "0", "1", "head", "norm", "é", "ex pert"])
PATHS = st.lists(NAMES, min_size=2, max_size=3).map(".".join)
MODELS = st.builds(
    lambda paths, prefixed, versioned, objects, plain: {
        "model": paths, "prefixed": prefixed, "versioned": versioned, "objects": objects, "plain": plain,
    },
    st.lists(PATHS, min_size=1, max_size=4, unique=True), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
BESIDE = st.sampled_from(["rng", "measures", "scores", "optimizer", "named", "numbers", "text"])
HOLDERS = st.recursive(
    st.one_of(MODELS, BESIDE),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["a", "b", "c.d", "ü", "model"]), inner, max_size=3),
        st.lists(inner, max_size=2),
    ),
    max_leaves=5,
)
RULES: dict[str, tuple[list[str], Callable[[str], str]]] = {
    "bare": ([], lambda key: key.removeprefix("module.")),
    "strip": (["--strip", "module."], lambda key: key.removeprefix("module.")),
    "compile": (["--to", "compile"], lambda key: "_orig_mod." + key.removeprefix("module.")),
    "add": (["--add", "net"], lambda key: f"net.{key}"),
    "map": (["--map", "fc=body"], lambda key: "body" + key[2:] if key.startswith("fc.") else key),
}


def built(tree: Any, rename: Callable[[str], str], location: Location = (), meant: Any = None) -> Any:
    """Build what is described, with the names of the models that are meant as a rule gives them."""
    import torch

    if isinstance(tree, dict) and "versioned" in tree:
        new = rename if meant is None or location in meant else str
        front = "module." if tree["prefixed"] else ""
        found: Any = OrderedDict()
        for number, path in enumerate(tree["model"]):
            found[new(f"{front}{path}.weight")] = torch.full((2,), float(number))
            if tree["objects"]:
                found[new(f"{front}{path}.packed.dtype")] = torch.qint8
        if tree["plain"]:
            found |= {"step": 3}
        if tree["versioned"]:
            found._metadata = OrderedDict({"": {"version": 1}})
        return found
    if isinstance(tree, dict):
        return {key: built(each, rename, (*location, key), meant) for key, each in tree.items()}
    if isinstance(tree, list):
        return [built(each, rename, (*location, index), meant) for index, each in enumerate(tree)]
    return {
        "rng": {"cpu": torch.arange(8, dtype=torch.uint8)},
        "measures": {"loss": torch.tensor(0.5), "module": torch.tensor(1)},
        "scores": {"/runs/module.x.ckpt": torch.tensor(0.5)},
        "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"params": [0]}]},
        "named": {"state": {"nobody": {"exp_avg": torch.ones(2)}}, "param_groups": [{"params": ["nobody"]}]},
        "numbers": {"module.step": 3, "fc.best": 0.5},
        "text": "module.fc.weight",
    }[tree]


def models(tree: Any, location: Location = ()) -> Iterator[Location]:
    """Yield where models are."""
    if isinstance(tree, dict) and "versioned" in tree:
        yield location
    elif isinstance(tree, (dict, list)):
        for key, each in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from models(each, (*location, key))


@SLOW
@given(tree=HOLDERS, rule=st.sampled_from(list(RULES)), data=st.data())
def test_exactly_the_models_keys_change(tmp_path: Path, tree: Any, rule: str, data: st.DataObject) -> None:
    """Of any nested checkpoint, the names of the models that are meant change, and nothing else; or nothing at all."""
    options, rename = RULES[rule]
    there = list(models(tree))
    meant = data.draw(st.none() | st.lists(st.sampled_from(there), min_size=1, unique=True)) if there else None
    path, out = save(tmp_path, built(tree, str)), tmp_path / "out.pt"
    out.unlink(missing_ok=True)
    before = path.read_bytes()
    said = run(
        "repair",
        path,
        *options,
        "-o",
        out,
        *(word for at in meant or () for word in ("--at", checkpoint.subscript("ckpt", at))),
    )

    assert path.read_bytes() == before
    if not there or (meant is None and len(there) > 1 and rule in {"compile", "add", "map"}):
        assert (said.exit_code, out.exists()) == (2, False), said.output
        return
    assert said.exit_code == 0, said.output
    wanted = built(tree, rename, meant=meant)
    assert checkpoints.words(unversioned_copy(load(out))) == checkpoints.words(unversioned_copy(wanted))


def unversioned_copy(value: Any) -> Any:
    """Return the value with plain dicts: what the versions of layers are called is another test's."""
    if isinstance(value, dict):
        return {key: unversioned_copy(each) for key, each in value.items()}
    return [unversioned_copy(each) for each in value] if isinstance(value, list) else value


class TestAWrapperAroundAPart:
    """``model.features = DataParallel(model.features)``: the name of the wrapper stands inside, where a layer's can."""

    @pytest.fixture
    def part(self, tmp_path: Path) -> Path:
        """Save a model of which one part is wrapped."""
        import torch

        model = torch.nn.ModuleDict({"features": parallel(net()), "classifier": torch.nn.Linear(3, 2)})
        torch.save(model.state_dict(), path := tmp_path / "part.pt")
        return path

    def test_it_is_left_and_told(self, part: Path, tmp_path: Path) -> None:
        """Nothing tells it from a layer: the keys stay, and the option that takes it off is named."""
        said = run("repair", part, "-o", out := tmp_path / "out.pt")
        assert said.exit_code == 0
        assert "--map features.module=features takes it off" in said.output
        assert out.read_bytes() == part.read_bytes()

    def test_the_command_of_inspect_takes_it_off(self, part: Path, tmp_path: Path) -> None:
        """``inspect`` shows where it stands, and a command that gives the keys of the bare model."""
        import torch

        shown = run("inspect", part).output
        assert "features.module. on all keys of that part" in shown
        command = next(line for line in shown.splitlines() if "ddpdoctor repair" in line)
        done = run(*shlex.split(command.partition("ddpdoctor ")[2]))
        assert done.exit_code == 0, done.output
        bare = torch.nn.ModuleDict({"features": net(), "classifier": torch.nn.Linear(3, 2)})
        bare.load_state_dict(torch.load(tmp_path / "part.bare.pt"))

    def test_the_command_of_explain_takes_it_off(self, part: Path, tmp_path: Path) -> None:
        """Where load_state_dict has refused the file, the command of the fix does what it says."""
        import torch

        bare = torch.nn.ModuleDict({"features": net(), "classifier": torch.nn.Linear(3, 2)})
        with pytest.raises(RuntimeError) as refused:
            bare.load_state_dict(torch.load(part))
        (log := tmp_path / "train.log").write_text(f"RuntimeError: {refused.value}\n")
        said = run("explain", log).output
        assert "module-prefix" in said
        command = next(line for line in said.splitlines() if "ddpdoctor repair" in line)
        done = run(*shlex.split(command.partition("ddpdoctor ")[2].replace("last", str(tmp_path / "part"))))
        assert done.exit_code == 0, done.output
        bare.load_state_dict(torch.load(tmp_path / "part.bare.pt"))

    def test_a_layer_of_that_name_beside_others_is_none(self, tmp_path: Path) -> None:
        """A part with other keys beside those of ``module.`` has no wrapper around it."""
        import torch

        part = torch.nn.ModuleDict({"module": net(), "head": torch.nn.Linear(2, 2)})
        torch.save(torch.nn.ModuleDict({"part": part}).state_dict(), path := tmp_path / "own.pt")
        assert "prefix" not in run("inspect", path).output
        assert "--map" not in run("repair", path, "--dry-run").output


@pytest.mark.parametrize("mapped", ["part.module=part", "part.module.=part.", "part.module.=part", "part.module=part."])
def test_beginnings_are_mapped_with_and_without_their_dot(tmp_path: Path, mapped: str) -> None:
    """``--map`` takes the beginning of keys as people write it."""
    import torch

    torch.save({"part.module.weight": torch.zeros(2), "part.modules.bias": torch.zeros(2)}, path := tmp_path / "a.pt")
    checkpoint.repair(path, out := tmp_path / "b.pt", rename=[(mapped.partition("=")[0], mapped.partition("=")[2])])
    assert set(torch.load(out)) == {"part.weight", "part.modules.bias"}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--strip=studen.", "no key begins with studen."),
        ("--map=studen=student", "no key is called studen, or begins with studen."),
        ("--regex=^studen[.]=x.", "--regex ^studen[.]=x. changes no key"),
    ],
)
def test_a_step_that_finds_nothing_is_told(tmp_path: Path, option: str, words: str) -> None:
    """A misspelt prefix is not taken for work that is done: the line says which step found no key."""
    import torch

    torch.save(net().state_dict(), path := tmp_path / "a.pt")
    said = run("repair", path, option, "--in-place")
    assert said.exit_code == 0
    assert words in said.output


@pytest.mark.parametrize("counter", ["n_averaged", "steps"])
def test_an_average_beside_the_model(tmp_path: Path, counter: str) -> None:
    """An averaged model's own ``module.`` stays, torch's and mmengine's alike, when the model's comes off."""
    import torch

    bare = net().state_dict()
    average = OrderedDict([(counter, torch.tensor(4)), *((f"module.{key}", value) for key, value in bare.items())])
    path = tmp_path / "epoch_1.pth"
    torch.save({"state_dict": parallel(net()).state_dict(), "ema_state_dict": average}, path)
    done = run("repair", path, "-o", tmp_path / "bare.pth")
    assert (done.exit_code, "left alone: it is the state of an AveragedModel" in done.output) == (0, True)
    mended = torch.load(tmp_path / "bare.pth", weights_only=True)
    assert list(mended["state_dict"]) == list(bare)
    assert list(mended["ema_state_dict"]) == list(average)
    assert f"module. and {counter} are its own" in run("inspect", path).output


def test_an_average_loads_without_its_counter() -> None:
    """The counter of mmengine is left out, as torch's is."""
    import torch

    average = {"steps": torch.tensor(4), **{f"module.{key}": value for key, value in net().state_dict().items()}}
    assert load_state_dict(net(), average).left_out == ("steps",)
