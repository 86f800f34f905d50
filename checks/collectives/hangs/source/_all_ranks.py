"""Methods of frameworks that all ranks have to call, and how each framework says that it is the first rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import ACCELERATOR, COLLECTIVES, FULLY_SHARD, keyword

from ..handed._decorated import decorator_of_one_rank
from ..handed._logged import is_of_rank_zero
from ._computed import computes_over_ranks
from ._engines import ENGINE_METHODS, is_engine, saved_by_helpers
from ._of_workers import of_workers

if TYPE_CHECKING:
    from ddpdoctor.check import Script

OF_ACCELERATE = set("gather gather_for_metrics reduce wait_for_everyone pad_across_processes".split())
OF_LIGHTNING = set("save_checkpoint validate test predict".split())
OF_A_MODULE = {"all_gather"}
OF_FABRIC = set("all_gather all_reduce broadcast barrier save load".split())
FABRICS = ("lightning.fabric.Fabric", "lightning.Fabric", "lightning_fabric.Fabric")
OF_TRL = ("SFTTrainer", "DPOTrainer", "RewardTrainer", "KTOTrainer", "ORPOTrainer", "CPOTrainer", "GRPOTrainer")
TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", *(f"trl.{each}" for each in OF_TRL))
OF_TRAINER = {"evaluate", "predict"}
SHARDED = re.compile(r"state_dict_type|SHARDED_STATE|fsdp_version|[Ff]ull_?[Ss]tate_?[Dd]ict")
"""What can have the Trainer save shards, of which each rank writes its own."""
LIGHTNINGS = {"lightning", "pytorch_lightning"}
A_TRAINER = re.compile(r"(?:self\.)?trainer")
ZERO = re.compile(r"^(?P<other>not )?(?P<owner>\w+(?:\.\w+)*)\.is_(?:local_)?main_process$")

FULL_TENSOR = "full_tensor"
ASKED = (
    OF_LIGHTNING
    | OF_A_MODULE
    | OF_FABRIC
    | OF_TRAINER
    | {FULL_TENSOR}
    | set(
        "log save_model save_checkpoint load_checkpoint save_16bit_model attach state_dict report run"
        " broadcast_from_rank_zero compute".split()
    )
)
"""All methods that are looked at here: most calls are of others."""
ZERO3_GATHERS = re.compile(r"""stage3_gather_16bit_weights_on_model_save["']\s*:\s*(?:True|true)""")
"""Without it, and at lower stages, nothing is gathered for a model that is saved in 16 bits."""

Alone = tuple[ast.Call, str, ast.AST]
"""A call, what it is, and the test or the decorator that lets one rank alone come to it."""


def by_frameworks(script: Script) -> Iterator[Alone]:
    """Yield the methods that one rank alone calls."""
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute):
            yield from _method(script, call, call.func)
    for call, test, inner in saved_by_helpers(script):
        if not others_have_a_branch(script, test, call):
            yield call, f"what calls {inner}, for all ranks of DeepSpeed", test
    for call in script.calls(*COLLECTIVES):
        if (decorator := decorator_of_one_rank(script, call)) is not None:
            yield call, "a collective", decorator


def _method(script: Script, call: ast.Call, function: ast.Attribute) -> Iterator[Alone]:
    owner = function.value
    if function.attr in OF_ACCELERATE and script.is_a(owner, ACCELERATOR):
        test = _main_process(script, call, ast.unparse(owner)) or decorator_of_one_rank(script, call)
        if test is not None:
            yield call, "a collective of Accelerate", test
        return
    guard = script.one_rank_guard(call) if function.attr in ASKED else None
    test = guard.test if guard is not None else decorator_of_one_rank(script, call) if function.attr in ASKED else None
    if test is None:
        return
    what = _of_a_trainer(script, call, function) or _that_gathers(script, call, function)
    if (what and (guard is None or not others_have_a_branch(script, test, call))) or (
        not what and (what := _of_an_engine(script, function) or of_workers(script, function))
    ):
        yield call, what, test


def _that_gathers(script: Script, call: ast.Call, function: ast.Attribute) -> str:
    """Return what a method is of a DTensor, or of a metric of torchmetrics; empty where it is none that gathers."""
    if function.attr == FULL_TENSOR and any(script.calls(FULLY_SHARD)):
        return "what gathers the shards of a DTensor from all ranks"
    gathers = function.attr == "compute" and computes_over_ranks(script, call, function.value)
    return "what has a metric of torchmetrics gather the counts of all ranks" if gathers else ""


def _of_an_engine(script: Script, function: ast.Attribute) -> str:
    """Return what a method is of DeepSpeed's engine; empty where it is none that all ranks have to call."""
    if function.attr in ENGINE_METHODS and is_engine(script, function.value):
        return "for all ranks of DeepSpeed, each of which writes its part"
    gathers = function.attr == "save_16bit_model" and ZERO3_GATHERS.search(script.text)
    return "what gathers the parameters of ZeRO 3" if gathers and is_engine(script, function.value) else ""


def _of_a_trainer(script: Script, call: ast.Call, function: ast.Attribute) -> str:
    """Return what a method is of Lightning's or transformers' Trainer, or of Fabric; empty where it is none."""
    name, owner = function.attr, ast.unparse(function.value)
    if name in OF_FABRIC and script.is_a(function.value, *FABRICS):
        return "a collective of Fabric"
    if LIGHTNINGS & script.imported:
        if name in OF_LIGHTNING and A_TRAINER.fullmatch(owner):
            return "for all ranks of Lightning"
        synced = keyword(call, "sync_dist") if name == "log" and not is_of_rank_zero(call) else None
        reduces = isinstance(synced, ast.Constant) and synced.value is True
        if (
            owner in {"self", "pl_module"}
            and (name in OF_A_MODULE or reduces)
            and _is_in_a_class(script, call, LIGHTNINGS)
        ):
            return "a collective of Lightning"
    if name in OF_TRAINER and (
        script.is_a(function.value, *TRAINERS)
        or (A_TRAINER.fullmatch(owner) and _is_in_a_class(script, call, {"transformers"}))
    ):
        return "for all ranks of Trainer, each of which computes its part"
    if name == "save_model" and script.is_a(function.value, *TRAINERS) and _is_sharded(script):
        return "for all ranks of Trainer, whose shards it gathers before one of them writes"
    return ""


def _is_sharded(script: Script) -> bool:
    """Whether the arguments of the transformers Trainer ask for FSDP, which gathers the whole model to save it."""
    words = [keyword(each, "fsdp") for each in script.nodes(ast.Call)]
    asked = [each for each in words if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any("shard" in str(each.value) for each in asked) and SHARDED.search(script.text) is None


def _is_in_a_class(script: Script, call: ast.Call, libraries: Collection[str]) -> bool:
    """Whether a call stands in a method of a class with a base of one of these libraries."""
    owner = script.tree.class_of(call)
    bases = [script.resolve(base) or "" for base in getattr(owner, "bases", ())]
    return any(base.partition(".")[0] in libraries for base in bases)


def _main_process(script: Script, call: ast.Call, owner: str) -> ast.expr | None:
    """Return the test of ``accelerator.is_main_process`` that a call stands behind, if no other branch calls it.

    It stands behind ``if not accelerator.is_main_process: return`` as well, and behind more than that test.
    """
    for guard in script.guards(call):
        match guard.test:
            case ast.BoolOp(op=joined, values=parts) if isinstance(joined, ast.And if guard.holds else ast.Or):
                found = [ZERO.match(ast.unparse(each)) for each in parts]
            case test:
                found = [ZERO.match(ast.unparse(test))]
        lets = any(each and each["owner"] == owner and guard.holds is not bool(each["other"]) for each in found)
        if lets and not others_have_a_branch(script, guard.test, call):
            return guard.test
    return None


def others_have_a_branch(script: Script, test: ast.expr, call: ast.Call) -> bool:
    """Whether the other ranks have a branch of their own, in which they can call it as well."""
    branch = script.tree.parents.get(test)
    if not isinstance(branch, ast.If) or branch.orelse:
        return True
    code = ast.unparse(call.func)
    around = script.function(call) or script.module
    calls = [node for node in script.inside(around) if isinstance(node, ast.Call) and node is not call]
    same = [node for node in calls if ast.unparse(node.func) == code]
    return any(
        (not guard.holds and ast.unparse(guard.test) == ast.unparse(test)) or "not " in ast.unparse(guard.test)
        for node in same
        for guard in script.guards(node)
    )
