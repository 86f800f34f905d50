"""Checkpoint files as real frameworks write them, what torch.load gives in words, and loads into wrapped models.

Ranks of a job run these functions: they find them by the module's name.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Location = tuple[str | int, ...]
Added = tuple[str, ...]  # texts that wrappers put into names, those that hold another one first

WIDE, HIDDEN, CLASSES = 6, 8, 4


def net(seed: int = 1) -> Any:
    """Build the bare model, with a layer that depends on its version and has buffers: BatchNorm."""
    import torch
    from torch import nn

    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        body = nn.Sequential(nn.Linear(WIDE, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU())
        return nn.Sequential(OrderedDict(body=body, head=nn.Linear(HIDDEN, CLASSES)))


def tied(seed: int = 1) -> Any:
    """Build a model whose two layers are one tensor."""
    import torch
    from torch import nn

    model: Any
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        head = nn.Linear(WIDE, HIDDEN, bias=False)
        model = nn.Sequential(OrderedDict(embedding=nn.Embedding(HIDDEN, WIDE), head=head, last=nn.Linear(HIDDEN, 9)))
    model.head.weight = model.embedding.weight
    return model


def extra(seed: int = 1) -> Any:
    """Build a model with extra state beside its tensors, as quantisation and Transformer Engine have."""
    import torch
    from torch import nn

    class Scaled(nn.Linear):
        """A layer that keeps a history."""

        history: Any = ("weight", 1.5)

        def get_extra_state(self) -> Any:
            return self.history

        def set_extra_state(self, state: Any) -> None:
            self.history = state

    model = net(seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model.head = Scaled(HIDDEN, CLASSES)
    return model


def held(seed: int = 1) -> Any:
    """Build a model that holds another as ``model``."""
    from torch import nn

    return nn.Sequential(OrderedDict(model=net(seed)))


def unicode(seed: int = 1) -> Any:
    """Build a model with layers that are not named in ASCII, one of them at length."""
    from torch import nn

    return nn.ModuleDict({"словарь": net(seed), "層" * 300: net(seed), "a\nb 'c' \"d\" \\": net(seed)})


def large(seed: int = 1) -> Any:
    """Build a model of more tensors than pickle puts into a dict at once."""
    import torch
    from torch import nn

    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(*(nn.PReLU() for _ in range(1100)))


def norm(_: int = 1) -> Any:
    """Build a model whose outermost module depends on its version."""
    from torch import nn

    return nn.BatchNorm1d(WIDE)


def kinds(_: int = 1) -> Any:
    """Build a model with a tensor of every kind that torch saves."""
    import torch
    from torch import nn

    model = nn.Module()
    plain = torch.arange(24.0).reshape(4, 6)
    model.weight = nn.Parameter(plain.clone())
    model.frozen = nn.Parameter(plain.clone(), requires_grad=False)
    quantised = torch.quantize_per_tensor(plain, 0.5, 3, torch.quint8)
    per_channel = torch.quantize_per_channel(
        plain, torch.full((4,), 0.5), torch.zeros(4, dtype=torch.int64), 0, torch.qint8
    )
    buffers = {
        "whole": plain,
        "view": plain[1:3, 2:5],  # of the same storage
        "transposed": plain.t(),
        "expanded": torch.ones(3, 1).expand(3, 4),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(7),
        "bfloat16": plain.bfloat16(),
        "half": plain.half().t(),
        "float8": plain.to(torch.float8_e4m3fn),
        "float8_scale": plain.to(torch.float8_e5m2),
        "uint16": torch.arange(5).to(torch.uint16),
        "bool": plain > 3,
        "complex": torch.complex(plain, -plain),
        "conjugate": torch.complex(plain, -plain).conj(),
        "negative": torch.complex(plain, plain).conj().imag,
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3, dtype=torch.float64).to_sparse_csr(),
        "meta": torch.empty(3, 5, device="meta").t(),
        "quantised": quantised,
        "per_channel": per_channel,
    }
    for name, tensor in buffers.items():
        model.register_buffer(f"as_{name}", tensor)  # a module has methods of some of these names
    return model


# ---------------------------------------------------------------------------------------------------------------------
# What a value is, in words that compare: every bit, stride, sharing and type


def bare_name(name: str, added: Added) -> str:
    """Take out what wrappers added; the bare models have no names like that."""
    for text in added:
        name = name.replace(text, "")
    return name


@dataclass
class Words:
    """Describes a value line by line; ``renamed`` and ``followed`` say where names are to be told without wrappers.

    ``renamed``: the keys of the mapping at a location. ``followed``: all keys and texts below a location.
    """

    renamed: Mapping[Location, Added] = field(default_factory=dict)
    followed: Mapping[Location, Added] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    _seen: dict[int, tuple[str, Any]] = field(default_factory=dict)
    _storages: dict[int, int] = field(default_factory=dict)

    def tell(self, value: Any, place: str = "", location: Location = (), added: Added = ()) -> None:
        """Describe a value that stands at a place."""
        added = self.followed.get(location, added)
        if isinstance(value, (str, bytes, int, float, complex, bool, type, type(None))):
            shown = bare_name(value, added) if isinstance(value, str) else value
            self.lines.append(f"{place} = {shown!r}")
            return
        if id(value) in self._seen:
            self.lines.append(f"{place} is {self._seen[id(value)][0]}")
            return
        self._seen[id(value)] = (place, value)  # held, so that its id is no other's
        for step, part in self._parts(value, place):
            new = bare_name(step, (*added, *self.renamed.get(location, ()))) if isinstance(step, str) else step
            self.tell(part, f"{place}[{new!r}]", (*location, step), added)

    def _parts(self, value: Any, place: str) -> Iterator[tuple[Any, Any]]:
        import numpy as np
        import torch

        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, torch.Tensor):
            yield from self._tensor(value, place, kind)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self.lines.append(f"{place}: {kind} {value.dtype} {value.shape} {value.tobytes().hex()}")
        elif isinstance(
            value, (np.generic, torch.dtype, torch.device, torch.layout, torch.Size, range, set, frozenset)
        ):
            self.lines.append(f"{place}: {kind} {value!r}")
        elif isinstance(value, (dict, list, tuple)):
            self.lines.append(f"{place}: {kind} of {len(value)}")
            yield from value.items() if isinstance(value, dict) else enumerate(value)
        else:
            self.lines.append(f"{place}: {kind}")
        for name, attribute in getattr(value, "__dict__", {}).items():
            if name != "_metadata" and not (isinstance(value, torch.Tensor) and name.startswith("_")):
                yield f".{name}", attribute

    def _tensor(self, value: Any, place: str, kind: str) -> Iterator[tuple[Any, Any]]:
        import torch

        shape = tuple(value.shape)
        self.lines.append(f"{place}: {kind} {value.dtype} {shape} {value.device} {value.layout} {value.requires_grad}")
        if hasattr(value, "_local_tensor"):  # DTensor
            mesh = "" if value.is_meta else value.device_mesh.mesh
            self.lines.append(f"{place} is placed {mesh} {value.placements} {value.stride()}")
            yield "._local_tensor", value._local_tensor
        elif hasattr(value, "local_shards"):  # ShardedTensor
            self.lines.append(f"{place} is sharded {value.metadata()}")
            yield from ((f".shard {index}", shard.tensor) for index, shard in enumerate(value.local_shards()))
        elif value.layout is torch.sparse_coo:
            self.lines.append(f"{place} is coalesced {value.is_coalesced()}")
            yield from ((".indices", value._indices()), (".values", value._values()))
        elif value.layout is torch.sparse_csr:
            yield from ((".rows", value.crow_indices()), (".columns", value.col_indices()), (".values", value.values()))
        else:
            self.lines.append(f"{place} has {self._memory(value)}")

    def _memory(self, value: Any) -> str:
        import torch

        text = f"strides {value.stride()} from {value.storage_offset()}, conj {value.is_conj()}, neg {value.is_neg()}"
        if value.is_quantized:
            scheme = value.qscheme()
            channels = scheme is torch.per_channel_affine
            text += f", {scheme}"
            text += f" {value.q_per_channel_scales()} {value.q_per_channel_zero_points()}" if channels else ""
            text += "" if channels else f" {value.q_scale()} {value.q_zero_point()}"
        if value.is_meta:
            return text
        storage = value.untyped_storage()
        number = self._storages.setdefault(storage._cdata, len(self._storages))
        data = torch.tensor([], dtype=torch.uint8).set_(storage).numpy().tobytes()
        return f"{text}, storage {number} of {hashlib.sha256(data).hexdigest()[:16]}"


def words(value: Any, renamed: Mapping[Location, Added] = {}, followed: Mapping[Location, Added] = {}) -> list[str]:
    """Describe a value; two values with the same words are the same."""
    told = Words(renamed, followed)
    told.tell(value)
    return told.lines


def part_of(value: Any, location: Location) -> Any:
    """Go to a location."""
    for step in location:
        value = value[step]
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Wrapped models


def wrapped(how: str, model: Any) -> Any:
    """Wrap as the option --to names it, the outermost first."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    wrappers: dict[str, Callable[[Any], Any]] = {
        "dp": torch.nn.DataParallel,
        "ddp": DistributedDataParallel,
        "compile": torch.compile,
    }
    for name in reversed(how.split(",") if how != "bare" else ()):
        model = wrappers[name](model)
    return model


def load_wrapped(folder: str, files: list[tuple[str, str]]) -> list[str]:
    """Load each file strictly into a model that is wrapped in this way; tell what went wrong."""
    import torch

    dcp: Any = import_module("torch.distributed.checkpoint")
    wrong = []
    for name, how in files:
        path, model = Path(folder, name), wrapped(how, net(2))
        try:
            if path.suffix == ".safetensors":
                model.load_state_dict(import_module("safetensors.torch").load_file(path))
            elif path.is_dir():
                state = {"model": model.state_dict()}
                dcp.load(state, checkpoint_id=path)
                model.load_state_dict(state["model"])
            else:
                model.load_state_dict(torch.load(path, weights_only=True))
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is reported
            wrong.append(f"{name} into {how}: {type(exc).__name__}: {exc}")
            continue
        ours, theirs = list(model.state_dict().values()), list(net(1).state_dict().values())
        if not all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)):
            wrong.append(f"{name} into {how}: other values")
    return wrong


def rank_words(files: list[tuple[str, str]], added: Added) -> list[tuple[list[str], list[str]]]:
    """Describe this rank's files before, with the new names, and after; both names hold a place for the rank."""
    import torch
    import torch.distributed as dist

    def load(path: str) -> Any:
        return torch.load(path.format(rank=dist.get_rank()), weights_only=False)

    return [(words(load(before), {(): added}), words(load(after))) for before, after in files]


# ---------------------------------------------------------------------------------------------------------------------
# Files


def put(folder: str, name: str, value: Any) -> None:
    """Save in the format of torch, and in that of torch before 1.6."""
    import torch

    for form in ("zip", "legacy"):
        Path(folder, form).mkdir(exist_ok=True)
        torch.save(value, Path(folder, form, f"{name}.pt"), _use_new_zipfile_serialization=form == "zip")


def trained(model: Any, optimizer: Any) -> Any:
    """Take a step, so that the optimizer has a state; the weights are put back: in every file, they are the same.

    There is no forward pass, which torch.compile would compile.
    """
    import torch

    before = [parameter.detach().clone() for parameter in model.parameters()]
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.1 * (index + 1))
    optimizer.step()
    with torch.no_grad():
        for parameter, old in zip(model.parameters(), before, strict=True):
            parameter.copy_(old)
    return optimizer


def everything(model: Any) -> dict[str, Any]:
    """Return parameters and buffers by the names that the wrappers give, which some state dicts leave out."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def make_with_torch(folder: str) -> None:
    """Write what torch alone makes, on two ranks."""
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")  # deprecations of what people's files were made with
    first = dist.get_rank() == 0
    shared = {**_ddp(), **_fsdp(folder)}
    _dcp(folder)
    if first:
        for name, value in {**shared, **_local()}.items():
            put(folder, name, value)
        # torch.load has never read such storages in the old format
        odd = wrapped("dp", kinds()).state_dict()
        old = OrderedDict((key, value) for key, value in odd.items() if not key.startswith(NEWER))
        torch.save(odd, Path(folder, "zip", "kinds.pt"))
        torch.save(wrapped("dp,compile", large()).state_dict(), Path(folder, "zip", "large.pt"))
        torch.save(old, Path(folder, "legacy", "kinds.pt"), _use_new_zipfile_serialization=False)
        if find_spec("safetensors"):
            _safetensors(folder)
    dist.barrier()


def _ddp() -> dict[str, Any]:
    import torch

    named_optimizer: Any = import_module("torch.distributed.optim")._NamedOptimizer
    model = wrapped("ddp", net())
    compiled = wrapped("ddp,compile", net())
    adam = trained(model, torch.optim.Adam(model.parameters()))
    schedule = torch.optim.lr_scheduler.StepLR(adam, 10)
    average = torch.optim.swa_utils.AveragedModel(model.module)
    named = trained(compiled, torch.optim.Adam(compiled.named_parameters()))
    keyed = trained(compiled, named_optimizer(compiled.named_parameters(), torch.optim.Adam, None, compiled, lr=0.1))
    return {
        "ddp": wrapped("ddp", net()).state_dict(),
        "ddp,compile": wrapped("ddp,compile", net()).state_dict(),
        "compile,ddp": wrapped("compile,ddp", net()).state_dict(),
        "training": {
            "epoch": 3,
            "model": model.state_dict(),
            "optimizer": adam.state_dict(),
            "scheduler": schedule.state_dict(),
            "ema": average.state_dict(),
            "args": argparse.Namespace(lr=0.1, layers=["module.head.weight", "module.body"], out=Path("out")),
            "rng": {"torch": torch.get_rng_state(), "python": random.getstate(), "best": _numpy()},
            "module": "module.head.weight",
        },
        "gan": {"net": {"g": model.state_dict(), "d": compiled.state_dict()}, "step": 7},
        "param_names": {"model": compiled.state_dict(), "optimizer": named.state_dict()},
        "named_optimizer": {"model": compiled.state_dict(), "optimizer": keyed.state_dict()},
        "ddp_parameters": dict(compiled.named_parameters()),
        "ema_of_ddp": {"model": model.state_dict(), "ema": {k: v.clone() for k, v in model.state_dict().items()}},
    }


def _numpy() -> dict[str, Any]:
    import numpy as np

    return {
        "score": np.float64(0.5),
        "history": np.arange(6).reshape(2, 3),
        "state": np.random.default_rng(1).bit_generator.state,
    }


def _fsdp(folder: str) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
    )
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    def old(**options: Any) -> Any:
        policy = ModuleWrapPolicy({torch.nn.Linear})
        return FullyShardedDataParallel(net(), device_id=torch.device("cpu"), auto_wrap_policy=policy, **options)

    made: dict[str, Any] = {}
    model = old()
    compiled = wrapped("compile", model)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        made["fsdp_full"] = model.state_dict()
        made["compile,fsdp_full"] = compiled.state_dict()
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        torch.save(compiled.state_dict(), Path(folder, f"fsdp_sharded-{dist.get_rank()}.pt"))
    made["fsdp_parameters"] = everything(old(use_orig_params=True))
    made["compile,fsdp_parameters"] = everything(torch.compile(old(use_orig_params=True)))

    model = net()
    fully_shard(model.body)
    fully_shard(model)
    adam = trained(model, torch.optim.Adam(model.parameters()))
    compiled = wrapped("compile", model)
    torch.save(compiled.state_dict(), Path(folder, f"fsdp2_sharded-{dist.get_rank()}.pt"))
    full = StateDictOptions(full_state_dict=True)
    whole: dict[str, Any] = {"model": get_model_state_dict(compiled, options=full)}
    whole["optimizer"] = get_optimizer_state_dict(compiled, adam, options=full)
    made["fsdp2_full"] = whole
    return made


def _dcp(folder: str) -> None:
    import torch
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    from torch.distributed.fsdp import fully_shard

    dcp: Any = import_module("torch.distributed.checkpoint")

    def write(name: str, state: dict[str, Any]) -> None:
        dcp.save(state, checkpoint_id=Path(folder, "dcp", name))

    bare, model, compiled = net(), wrapped("ddp", net()), wrapped("ddp,compile", extra())
    adam = trained(model, torch.optim.Adam(model.parameters()))
    named = trained(compiled, torch.optim.Adam(compiled.named_parameters()))
    write("plain", {"model": bare.state_dict()})
    write("ddp_flat", model.state_dict())
    write(
        "training", {"model": model.state_dict(), "optimizer": adam.state_dict(), "epoch": 3, "tags": ["module.head"]}
    )
    write(
        "extra",
        {
            "net": {"g": compiled.state_dict(), "d": wrapped("ddp", extra()).state_dict()},
            "optimizer": named.state_dict(),
        },
    )
    sharded = net()
    fully_shard(sharded.body)
    fully_shard(sharded)
    adam = trained(sharded, torch.optim.Adam(sharded.parameters()))
    keyed: Any = import_module("torch.distributed.optim")._NamedOptimizer
    keyed = trained(compiled, keyed(compiled.named_parameters(), torch.optim.Adam, None, compiled, lr=0.1))
    write("named", {"model": compiled.state_dict(), "optimizer": keyed.state_dict()})
    outer = wrapped("compile", sharded)
    write("fsdp2", {"model": outer.state_dict(), "optimizer": get_optimizer_state_dict(outer, adam)})


def _local() -> dict[str, Any]:
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.optim.swa_utils import AveragedModel

    inside = net()
    inside.body = torch.compile(inside.body)
    parallel_inside = net()
    parallel_inside.body = torch.nn.DataParallel(parallel_inside.body)
    activation = net()
    apply_activation_checkpointing(activation, check_fn=lambda module: isinstance(module, torch.nn.Linear))
    parallel = wrapped("dp", net())
    state = parallel.state_dict()
    named = wrapped("dp", net())
    next(named.parameters()).requires_grad_(requires_grad=False)
    next(named.parameters()).note = {"module.head.weight": 1}
    return {
        "bare": net().state_dict(),
        "dp": state,
        "compile": wrapped("compile", net()).state_dict(),
        "dp,compile": wrapped("dp,compile", net()).state_dict(),
        "dp,dp": wrapped("dp,dp", net()).state_dict(),
        "compile_inside": inside.state_dict(),
        "dp_inside": parallel_inside.state_dict(),
        "activation": activation.state_dict(),
        "activation_parameters": everything(activation),
        "dp_activation_parameters": everything(wrapped("dp", activation)),
        "averaged": AveragedModel(net()).state_dict(),
        "tied": wrapped("dp", tied()).state_dict(),
        "extra": {"state_dict": wrapped("dp,compile", extra()).state_dict()},
        "parameters": everything(named),
        "plain_dict": dict(state),
        "twice": {"last": state, "best": state, "key": "module.head.weight"},
        "listed": {"models": [state, wrapped("compile", net()).state_dict()]},
        "views": OrderedDict(_views(state)),
        # one string object each, which the pickle spells once, and fetches where it stands again
        "aliased": {"before": list(state), "model": state, "after": list(state)},
        "aliased_twice": {"model": state, "ema": {key: value.clone() for key, value in state.items()}},
        "aliased_average": {"ema": {"n_averaged": torch.tensor(1), **state}, "model": dict(state)},
        "unicode": wrapped("dp", unicode()).state_dict(),
        "norm": wrapped("dp,compile", norm()).state_dict(),
        "bare_extra": extra().state_dict(),
    }


def _views(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Put all tensors of one dtype into one storage, as flat optimizers and buffers do."""
    import torch

    flat = torch.cat([each.flatten() for each in state.values() if each.is_floating_point()])
    at = 0
    for key, value in state.items():
        if not value.is_floating_point():
            yield key, value
            continue
        yield key, flat[at : at + value.numel()].view(value.shape)
        at += value.numel()


def _safetensors(folder: str) -> None:
    safetensors: Any = import_module("safetensors.torch")
    Path(folder, "safetensors").mkdir()
    model = wrapped("dp", net())
    odd = {key: value for key, value in wrapped("dp", kinds()).state_dict().items() if key in SAFE}
    safetensors.save_file(
        model.state_dict(), Path(folder, "safetensors", "dp.safetensors"), {"format": "pt", "step": "3"}
    )
    safetensors.save_file(
        wrapped("dp,compile", net()).state_dict(), Path(folder, "safetensors", "dp,compile.safetensors")
    )
    safetensors.save_file(net().state_dict(), Path(folder, "safetensors", "bare.safetensors"))
    safetensors.save_file(odd, Path(folder, "safetensors", "kinds.safetensors"))
    safetensors.save_model(wrapped("dp", tied()), str(Path(folder, "safetensors", "tied.safetensors")))


# What safetensors holds: contiguous tensors that share no memory.
SAFE = [
    "module.weight",
    *(f"module.as_{name}" for name in "empty scalar bfloat16 float8 float8_scale uint16 bool".split()),
]


NEWER = ("module.as_float8", "module.as_uint16")


def make_with_accelerate(folder: str) -> None:
    """Write what Accelerate makes: files of one, and of several shards, and a training state."""
    import torch

    accelerator = import_module("accelerate").Accelerator(cpu=True)
    save: Any = import_module("huggingface_hub").save_torch_state_dict
    model = net()
    model.body = torch.compile(model.body)
    prepared, _ = accelerator.prepare(model, trained(model, torch.optim.Adam(model.parameters())))
    home = Path(folder, "accelerate")
    accelerator.save_state(str(home / "state"))
    accelerator.save_model(prepared, str(home / "sharded"), max_shard_size=200)
    accelerator.save_model(prepared, str(home / "sharded_bin"), max_shard_size=200, safe_serialization=False)
    accelerator.save(wrapped("dp", net()).state_dict(), home / "saved.safetensors", safe_serialization=True)
    for name in ("hub", "hub_tied"):
        (home / name).mkdir()
    save(wrapped("dp", net()).state_dict(), home / "hub", max_shard_size=200, metadata={"step": "3"})
    save(wrapped("dp", tied()).state_dict(), home / "hub_tied", max_shard_size=100)


def make_with_lightning(folder: str) -> None:
    """Write what Lightning's Trainer and Fabric make; the latter on two ranks with DDP."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    lightning: Any = import_module("lightning")

    class Task(lightning.LightningModule):  # type: ignore[misc]  # the package need not be here
        """A model held as ``model``, as in most tutorials."""

        def __init__(self, compiled: bool, lr: float = 0.0) -> None:  # noqa: ARG002, FBT001 - saved as it is
            super().__init__()
            self.save_hyperparameters()
            bare = net()
            self.model = torch.compile(bare) if compiled else bare
            self.plain = [bare]

        def training_step(self, batch: Any, _: int) -> Any:
            return (self.plain[0].head.weight * batch[0].sum()).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), self.hparams.lr)

    environ = {"RANK": dist.get_rank(), "LOCAL_RANK": dist.get_rank(), "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in environ.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "1", "GROUP_RANK": "0"}
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    data = DataLoader(TensorDataset(torch.ones(8, WIDE)), batch_size=4)
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    bare = net()
    model, adam = fabric.setup(bare, torch.optim.Adam(bare.parameters()))
    trained(model, adam)
    named = {"model": everything(model), "optimizer": adam.state_dict()}
    single = lightning.Fabric(accelerator="cpu", devices=1)
    put_all = {"fabric_ddp": named, "fabric": everything(single.setup(net()))}
    put_all["fabric_compile"] = everything(single.setup(wrapped("compile", net())))
    fabric.save(Path(folder, "fabric.ckpt"), {"model": model, "optimizer": adam, "step": 3})
    for name in environ:
        del os.environ[name]
    for compiled in (False, True):
        if dist.get_rank() == 0:
            trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, default_root_dir=folder, **quiet)
            trainer.fit(Task(compiled), data)
            trainer.save_checkpoint(Path(folder, f"lightning{'_compile' * compiled}.ckpt"))
    if dist.get_rank() == 0:
        for name, value in put_all.items():
            put(folder, name, value)
    dist.barrier()


def contents(path: Path) -> Any:
    """Read a checkpoint of any kind whole."""
    import torch

    if path.suffix == ".safetensors":
        with import_module("safetensors").safe_open(path, "pt") as file:
            metadata = file.metadata()
        # the library gives the metadata in an order of its own
        return {
            "tensors": import_module("safetensors.torch").load_file(path),
            "metadata": dict(sorted((metadata or {}).items())),
        }
    if (path / ".metadata").exists():
        return _dcp_contents(path)
    if path.is_dir():
        return {
            file.name: json.loads(file.read_text()) if file.suffix == ".json" else contents(file)
            for file in sorted(path.iterdir())
            if file.name[0] != "."
        }
    return torch.load(path, weights_only=False)


def _dcp_contents(path: Path) -> Any:
    dcp: Any = import_module("torch.distributed.checkpoint")
    planner: Any = import_module("torch.distributed.checkpoint.default_planner")._EmptyStateDictLoadPlanner
    loader: Any = import_module("torch.distributed.checkpoint.state_dict_loader")
    state: dict[str, Any] = {}
    loader._load_state_dict(state, dcp.FileSystemReader(path), planner=planner(), no_dist=True)
    return state
