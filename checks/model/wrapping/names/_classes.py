"""The class of a model in a source, and the attributes that are its own."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    given,
)

if TYPE_CHECKING:
    from ddpdoctor.check import Script, Tree, Wrap


def is_method_of_none(script: Script, node: ast.Attribute, wrap: Wrap) -> bool:
    """Whether what is called is a method of no wrapper, of a variable that holds a wrapper there on every way.

    The class of the model is not known: it is of a library.
    """
    call = script.tree.parents[node]
    if not isinstance(call, ast.Call) or call.func is not node or not isinstance(node.value, ast.Name):
        return False
    is_wrapper = script.held(node.value) is wrap.call
    known = node.attr in OF_EVERY_MODULE or node.attr.startswith("_") or "setattr" in script.text
    return is_wrapper and not known and not script.is_assigned(node)


def class_of(script: Script, wrap: Wrap) -> tuple[Tree, ast.ClassDef] | None:
    """Return the class of the project whose object a wrap was given, and the tree of its file.

    None where it is another, or has a parent that is one of its own.
    """
    return class_of_model(script, given(wrap.call, 0, "module"))


def class_of_model(script: Script, held: ast.expr | None) -> tuple[Tree, ast.ClassDef] | None:
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


def own(tree: Tree, owner: ast.ClassDef) -> set[str]:
    """Return what a class defines, and what its methods store on self, but for what every module has."""
    defined = set(tree.bindings.get(owner, {}))
    stored = {text.removeprefix("self.") for key, text in tree.attributes if key is owner}
    return {name for name in defined | stored if "." not in name} - OF_EVERY_MODULE


def is_asked_for(script: Script, node: ast.Attribute) -> bool:
    """Whether the file tests for the attribute or for a wrapper, or catches what is raised."""
    for outer in script.tree.above(node):
        if isinstance(outer, ast.Try) and outer.handlers:
            return True
        if isinstance(outer, (ast.If, ast.IfExp)) and re.search(rf"{ASKS}|\b{node.attr}\b", script.code(outer.test)):
            return True
    return False


ASKS = r"(?i)hasattr|isinstance|module|dist|ddp|parallel|world|gpu|rank|multi|launch|process|wrap|accel|type\("
"""Words of a test that can ask whether there is a wrapper."""
