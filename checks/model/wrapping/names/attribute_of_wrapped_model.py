"""An attribute of the model is read from its wrapper.

## What happens

DDP and DataParallel forward calls, not attributes: `model.encode(x)` after `model = DDP(model)` raises
"AttributeError: 'DistributedDataParallel' object has no attribute 'encode'". It often shows only at the first
validation or when the checkpoint is written, hours later.

## How to be sure

ddpdoctor reads the file that the factory stands in: a name is bound to `DDP(...)` or
`DataParallel(...)`, and further down in the same block an attribute is read from it that the user's model has
and the wrapper has not. Attributes that the file sets on the wrapper, and what stands in `try` or under
`hasattr`, are left alone. Other files are not read.

In a source (`ddpdoctor lint`): the variable holds the wrapper on every way, and the model's class stands in the file or
one that it imports and defines the attribute, or a method is called that no wrapper has. With Accelerate the same is
reported of what `prepare` returns, here and in the functions of the file that are handed it; not with DeepSpeed or
FSDP, whose wrappers hand out the model's attributes.

## How to mend it

`model.module.encode(x)`. In training, though, whatever computes the loss belongs in forward:
a call through `.module` averages no gradients where the result reaches backward.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    Ailment,
    Ambiguity,
    Evidence,
    Finding,
    Fix,
    Log,
    Place,
    Record,
    Severity,
    given,
    lint,
    log_pattern,
    probe,
)

from ...._frameworks.accelerate import is_launched_with_several
from ..._logs import APEX, TRAINER, beside, is_private
from ._prepared import read_of_prepared

if TYPE_CHECKING:
    from ddpdoctor.check import Around, ModelExam, Script, Tree, Wrap

AILMENT = Ailment("DDP516", Severity.ERROR)


@probe
def in_the_factorys_file(model: ModelExam) -> Iterator[Finding]:
    """Find the reads that raise."""
    for read in model.source.reads:
        if read.attribute in model.model.attributes:
            yield Finding(
                f"{read.name}.{read.attribute} raises AttributeError: {read.name} is {read.wrapper}(...), "
                "which hides the model's attributes",
                (
                    Evidence(
                        f"{read.name}.{read.attribute}",
                        f"{read.name}.module.{read.attribute}",
                        f"{model.source.file}:{read.line}",
                    ),
                ),
                Fix(
                    "read it from the module inside",
                    diff=f"-{read.name}.{read.attribute}\n+{read.name}.module.{read.attribute}",
                ),
                place=Place(file=model.source.file, line=read.line),
            )


@log_pattern(
    r"'((?:MM)?(?:DataParallel|DistributedDataParallel)|FullyShardedDataParallel)' object has no attribute '(\w+)'",
    context=(TRAINER,),
)
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Name the attribute; what belongs to the wrapper itself, or is hidden by Trainer's own wrapping, is not it."""
    wrapper, name = match[1], match[2]
    if name in APEX or is_private(record, name) or (wrapper == "DataParallel" and beside(record, log, TRAINER)):
        return
    yield Finding(
        f"{name} is read from the wrapper {wrapper}, which hides the attributes of the model",
        (record.proof(match, f"model.module.{name}"),),
        Fix(
            "read it from the module inside: with Accelerate accelerator.unwrap_model(model), else model.module",
            diff=f"-model.{name}\n+model.module.{name}",
        ),
        record.place,
    )


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for an attribute of a class of this file that is read from the wrapper of one of its objects."""
    for node in script.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load):
            continue
        wrap = script.wrap(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
        if wrap is None or not wrap.in_ranks or _is_asked_for(script, node):
            continue
        found = _class_of(script, wrap)
        if found is None and wrap.sure and _is_method_of_none(script, node, wrap):
            right = f"{script.code(node.value)}.module.{node.attr}"
            yield Finding(
                f"{script.code(node.value)} is a {wrap.kind}, which has no {node.attr}: an AttributeError",
                (script.seen(node, right), script.seen(wrap.call)),
                Fix("ask what is wrapped", edits=(script.replaced(node, right),)),
                script.place(node),
            )
        if found is not None and node.attr in _own(*found) and not script.is_assigned(node):
            owner, name = found[1], script.code(node.value)
            right = f"{name}.module.{node.attr}" if wrap.sure else f'getattr({name}, "module", {name}).{node.attr}'
            where = "" if wrap.sure else " in ranks"
            yield Finding(
                f"{node.attr} is of {owner.name}, and {name} is its {wrap.kind}{where}: an AttributeError",
                (script.seen(node, right), script.seen(wrap.call)),
                Fix("ask what is wrapped", edits=(script.replaced(node, right),)),
                script.place(node),
            )


FORWARDS = r"(?i)deepspeed|fsdp|fully_?sharded|megatron"
"""What hands out the attributes of the model that it has wrapped."""


@lint
def of_prepared_models(script: Script, project: Around) -> Iterator[Finding]:
    """Look for an attribute of a class of the project that is read of what Accelerate has prepared."""
    if (
        "accelerate" not in script.imported
        or project.says(FORWARDS)
        or project.in_launches(r"distributed_type: *(?:DEEP|FSDP)")
    ):
        return
    told = set()
    for read in read_of_prepared(script):
        node, name = read.node, script.code(read.node.value)
        found = _class_of_model(script, read.model)
        if found is None or node.attr not in _own(*found) or _is_asked_for(script, node) or script.is_assigned(node):
            continue
        if node in told:
            continue
        told.add(node)
        right = f'getattr({name}, "module", {name}).{node.attr}'
        yield Finding(
            f"{node.attr} is of {found[1].name}, which Accelerate has wrapped where there are several processes: an "
            "AttributeError there",
            (script.seen(node, right), script.seen(read.call)),
            Fix("ask what is wrapped", edits=(script.replaced(node, right),))
            if not script.learns(script.function(node) or script.module)
            else Fix("compute in forward what the loss is made of, and call the model itself"),
            script.place(node),
            ambiguity=None if is_launched_with_several(script, project) else HOW,
        )


HOW = Ambiguity(
    (
        "several processes run it, each with a DistributedDataParallel: it fails",
        "one process runs it, which Accelerate wraps nothing for, or DeepSpeed or FSDP hands the attributes out",
    ),
    "accelerate env   # num_processes, distributed_type",
)


def _is_method_of_none(script: Script, node: ast.Attribute, wrap: Wrap) -> bool:
    """Whether what is called is a method of no wrapper, of a variable that holds a wrapper there on every way.

    The class of the model is not known: it is of a library.
    """
    call = script.tree.parents[node]
    if not isinstance(call, ast.Call) or call.func is not node or not isinstance(node.value, ast.Name):
        return False
    is_wrapper = script.held(node.value) is wrap.call
    known = node.attr in OF_EVERY_MODULE or node.attr.startswith("_") or "setattr" in script.text
    return is_wrapper and not known and not script.is_assigned(node)


def _class_of(script: Script, wrap: Wrap) -> tuple[Tree, ast.ClassDef] | None:
    """Return the class of the project whose object a wrap was given, and the tree of its file.

    None where it is another, or has a parent that is one of its own.
    """
    return _class_of_model(script, given(wrap.call, 0, "module"))


def _class_of_model(script: Script, held: ast.expr | None) -> tuple[Tree, ast.ClassDef] | None:
    model = _made(script, held)
    if not isinstance(model, ast.Call):
        return None
    tree, owner = script.tree, script.names_class(model.func)
    path = script.resolve(model.func) if owner is None else None
    if path is not None and "." in path and tree.abroad is not None:
        away = tree.abroad(path)
        tree, owner = (away[0], away[1]) if away is not None and isinstance(away[1], ast.ClassDef) else (tree, None)
    if owner is None or {script.names_in(tree, each) for each in owner.bases} != {"torch.nn.Module"}:
        return None
    return tree, owner


MOST_STEPS = 8  # from the wrapper back to where its model is made


def _made(script: Script, model: ast.expr | None, steps: int = MOST_STEPS) -> ast.expr | None:
    """Return what made a model, through what moves it: on some ways, or on all of them."""
    for _ in range(steps):
        if isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and model.func.attr in SAME_OBJECT:
            model = model.func.value
        elif isinstance(model, ast.Name):
            found = {_made(script, each, steps // 2) for each in script.can_hold(model)} if steps else {None}
            model = found.pop() if len(found) == 1 else None
    return model


SAME_OBJECT = {"to", "cuda", "cpu", "train", "eval", "half", "float"}
OF_EVERY_MODULE = set(
    "T_destination add_module apply bfloat16 buffers children compile cpu cuda device device_ids dim double"
    " dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu"
    " join logger load_state_dict module modules mtia named_buffers named_children named_modules"
    " named_parameters no_sync parameters process_group reducer register_backward_hook register_buffer"
    " register_comm_hook register_forward_hook register_module register_parameter requires_grad_ scatter"
    " set_extra_state share_memory state_dict to to_empty train training type xpu zero_grad gather output_device"
    " static_graph find_unused_parameters batched_grad_copy broadcast_bucket_size broadcast_buffers bucket_bytes_cap"
    " bucket_bytes_cap_default bucket_bytes_cap_list call_super_init device_type forward_sync_buffers"
    " gradient_as_bucket_view is_multi_device_module join_device join_hook join_process_group mixed_precision"
    " modules_buffers named_module_buffers parallel_apply parameters_to_ignore register_forward_pre_hook"
    " register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook"
    " register_load_state_dict_pre_hook register_state_dict_post_hook register_state_dict_pre_hook replicate"
    " require_backward_grad_sync require_forward_param_sync set_submodule skip_all_reduce_unused_params to_kwargs"
    " use_side_stream_for_tensor_copies will_sync_module_buffers".split()
)
"""What the wrappers and every module have, in torch 2.2 to 2.13."""


def _own(tree: Tree, owner: ast.ClassDef) -> set[str]:
    """Return what a class defines, and what its methods store on self, but for what every module has."""
    defined = set(tree.bindings.get(owner, {}))
    stored = {text.removeprefix("self.") for key, text in tree.attributes if key is owner}
    return {name for name in defined | stored if "." not in name} - OF_EVERY_MODULE


def _is_asked_for(script: Script, node: ast.Attribute) -> bool:
    """Whether the file tests for the attribute or for a wrapper, or catches what is raised."""
    for outer in script.tree.above(node):
        if isinstance(outer, ast.Try) and outer.handlers:
            return True
        if isinstance(outer, (ast.If, ast.IfExp)) and re.search(rf"{ASKS}|\b{node.attr}\b", script.code(outer.test)):
            return True
    return False


ASKS = r"(?i)hasattr|isinstance|module|dist|ddp|parallel|world|gpu|rank|multi|launch|process|wrap|accel|type\("
"""Words of a test that can ask whether there is a wrapper."""
