"""Tensor parallelism: which ranks compute one model together, and are to be given the same batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.on_import import Awaited, when_imported
from ddpdoctor.watch.events import TensorParallel
from ddpdoctor.watch.rank.hooks.parallel.tensor_inputs import Inputs
from ddpdoctor.watch.rank.patch import Wrap, patch

if TYPE_CHECKING:
    from types import ModuleType

    from ddpdoctor.watch.rank.recorder import Recorder

STYLES = "torch.distributed.tensor.parallel.style"
KINDS = ("ColwiseParallel", "RowwiseParallel", "PrepareModuleInput")


def hook(recorder: Recorder) -> list[Awaited]:
    """Replace what each style does to a layer, once they are imported."""
    told: set[tuple[tuple[int, ...], bool]] = set()
    inputs = Inputs(recorder)

    def of_styles(module: ModuleType) -> None:
        for kind in KINDS:
            if hasattr(getattr(module, kind, None), "_apply"):
                recorder.late.append(patch(getattr(module, kind), "_apply", _applying(recorder, told, inputs)))

    return [when_imported(STYLES, of_styles)]


def _applying(recorder: Recorder, told: set[tuple[tuple[int, ...], bool]], inputs: Inputs) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _apply(style: Any, module: Any, device_mesh: Any) -> Any:
            if recorder.is_rank:
                recorder.safely(_tell, recorder, told, style, device_mesh)
            done = original(style, module, device_mesh)
            if recorder.is_rank:
                recorder.safely(inputs.look_at, done, style, _group(device_mesh))
            return done

        return _apply

    return wrap


def _group(mesh: Any) -> tuple[int, ...]:
    return tuple(mesh.mesh.flatten().tolist())


def _tell(recorder: Recorder, told: set[tuple[tuple[int, ...], bool]], style: Any, mesh: Any) -> None:
    group = _group(mesh)
    layouts = getattr(style, "input_layouts", None) or ()
    by_rows = any(each is not None and each.is_shard(0) for each in layouts)
    if (group, by_rows) not in told:
        told.add((group, by_rows))
        recorder.emit(TensorParallel, group=group, by_rows=by_rows)
