"""The launcher passes --local-rank, and the script does not know the option by this spelling.

## What happens

`python -m torch.distributed.launch` hands each process its local rank as an option. Since torch 2.0 it is spelt
`--local-rank=0`, with a hyphen; scripts that declare `--local_rank` end with "unrecognized arguments: --local-rank=0"
on every rank, before anything else happens.

## How to be sure

The rejected argument has a hyphen; in the usage line the script's own option has an underscore, or it
has none.

In a source (`ddpdoctor lint`): `args.local_rank` chooses a device, the parser knows it as `--local_rank` alone, and
neither the file nor one in its reach reads LOCAL_RANK.

## How to mend it

Start with torchrun and read `int(os.environ["LOCAL_RANK"])`, which works in all versions; or declare
both spellings, which argparse stores under one name.

## Versions and sources

Source: PyTorch documentation, "torch.distributed.launch", and its notice on the change in version 2.0. Holds for torch
2.0 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import (
    DDP,
    Ailment,
    Evidence,
    Fact,
    Finding,
    Fix,
    Log,
    Record,
    Severity,
    dotted,
    keyword,
    lint,
    log_pattern,
)

from ._option import refused

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Edit, Script, Tree

AILMENT = Ailment("DDP405", Severity.ERROR)
DECLARED = r"usage:[^\n]{0,999}--local_rank\b|^\s+\[?--local_rank\b"


@log_pattern(refused("local-rank"), context=(DECLARED,))
def in_logs(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote what the script's own parser refused, and what it would take."""
    usage = log.first(DECLARED)
    yield Finding(
        "torch.distributed.launch passes --local-rank, and the script "
        + ("declares --local_rank" if usage else "has no such option"),
        (
            record.proof(match, "no --local-rank in the arguments: torchrun sets $LOCAL_RANK"),
            *((usage[0].proof(usage[1], "--local-rank"),) if usage else ()),
        ),
        Fix(
            "start with torchrun and read LOCAL_RANK; or let the script take both spellings",
            command="torchrun --standalone --nproc_per_node=2 train.py",
            diff='-parser.add_argument("--local_rank", type=int, default=0)\n'
            '+parser.add_argument("--local-rank", "--local_rank", type=int, default=0)',
        ),
        record.place,
    )


@lint
def in_source(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a local rank that can come from --local_rank alone, and that decides about a device."""
    yield from _about_devices(script, project)


def _about_devices(script: Script, project: Around) -> Iterator[Finding]:
    if script.frameworks - {"fvcore"} or "--local_rank" not in script.text or project.says(OTHER_SOURCES):
        return
    if project.says(VARIABLE) and (project.says(CALCULATED) or project.says(STORED)):
        return
    if not script.joins and not project.says(r"init_process_group|init_distributed|\binit_dist|apex"):
        return
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            names = [each.value for each in call.args if isinstance(each, ast.Constant)]
            if _is_lenient(script, call.func.value) or _is_idle(script, project, call):
                continue
            default = keyword(call, "default")
            if default is not None and not _is_number(default):
                continue  # calculated from something else
            if "--local_rank" not in names or "--local-rank" in names:
                continue
            if (use := _use(script) or _use_elsewhere(script, project, call)) is not None:
                yield Finding(
                    "the local rank is read from --local_rank alone: torchrun does not pass it, so that every process "
                    "gets the default; torch.distributed.launch of torch 2 passes --local-rank, which ends the script",
                    (script.seen(call, 'default=int(os.environ["LOCAL_RANK"])'), use),
                    Fix(
                        "take it from the environment, and know the option by both spellings",
                        diff=f"-{script.code(call)}\n+{script.code(call.func)}"
                        '("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))',
                        edits=_both_ways(script, call, default),
                    ),
                    script.place(call),
                )


def _is_lenient(script: Script, parser: ast.expr) -> bool:
    """Whether a parser passes over options that it does not know; one of another name that does is no matter."""
    lenient = [
        each.func.value
        for each in script.nodes(ast.Call)
        if isinstance(each.func, ast.Attribute)
        and each.func.attr in {"parse_known_args", "parse_known_intermixed_args"}
    ]
    named = {dotted(each) for each in lenient}
    made = script.held(parser)
    is_known = isinstance(made, ast.Call) and script.resolve(made.func) == "argparse.ArgumentParser"  # and no group
    if not lenient or (is_known and None not in named and dotted(parser) not in named):
        return any(script.held(each) is made for each in lenient)  # of two names
    return True


def _both_ways(script: Script, call: ast.Call, default: ast.expr | None) -> tuple[Edit, ...]:
    """Return the edits that let the option be passed by both spellings, and take its default from the environment."""
    if not script.has_module("os"):
        return ()
    number = script.code(default) if default is not None and script.code(default) != "None" else "0"
    right = f'int(os.environ.get("LOCAL_RANK", {number}))'
    if default is not None:
        return (_hyphened(script, call), script.replaced(default, right))
    return (_hyphened(script, call), script.keyword_added(call, f"default={right}"))


def _hyphened(script: Script, call: ast.Call) -> Edit:
    """Return the edit that puts the spelling of torch 2 before the other: the attribute stays that of both."""
    option = next(each for each in call.args if isinstance(each, ast.Constant) and each.value == "--local_rank")
    return script.replaced(option, '"--local-rank", "--local_rank"')


def _is_number(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


VARIABLE = r"LOCAL_RANK(?![\"']\]\s*=[^=]|[\"']\s+(?:not\s+)?in\s)"
"""What reads the variable of the launchers; to set it, or ask for it, is no source."""
STORED = r"setattr\((?!self\b)|__dict__|vars\(|[\"']local_rank[\"']|LOCAL_RANK\s*=[^=]|\.update\([^)]"
"""What can put the variable into the option's place by other ways; else it is read for something else."""
OTHER_SOURCES = (
    r"SLURM_LOCALID|SLURM_PROCID|local-rank"
    r"|\bspawn\(|start_processes\(|import[^\n]*\bspawn\b|get_node_local_rank|HfArgumentParser"
)
"""What says that the local rank can come from elsewhere as well."""
DEVICES = {"torch.cuda.set_device", "torch.device", DDP}
MOVES = {"cuda", "to"}


CALCULATED = (
    r"(?:\blocal_rank\s*|(?m:^)[ \t]*(?:[\w.]+\s*,\s*)*(?:\w+\.)*local_rank\s*,[^=\n()\[\]]*)"
    r"=(?!=)(?!\s*(?:(?:\w+\.)*local_rank\b|None\b|\{|-?\d+\s*[,)#\n]))"
    r"|deepspeed|accelerate"
)
"""What says that the local rank is made of something else, or that a launcher is used which passes the option."""


def _use_elsewhere(script: Script, project: Around, option: ast.Call) -> Evidence | None:
    """Return where the option decides about a device in what imports the file with the options, or is imported."""
    if project.says(CALCULATED):
        return None
    others = [*project.trees(r"\.local_rank\b")] if _is_asked(script, project, option) else []
    for path, tree in [(script.path, script.tree), *others]:
        for call in tree.of(ast.Call):
            is_move = isinstance(call.func, ast.Attribute) and call.func.attr in MOVES
            if not is_move and script.names_in(tree, call.func) not in DEVICES:
                continue
            for node in ast.walk(call):
                value = script.value_in(tree, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
                if value is not None and _is_option(value) and not _is_of_another(script, tree, value):
                    return Evidence(" ".join(ast.unparse(call).split()), "", f"{path}:{call.lineno}")
    return None


def _is_asked(script: Script, project: Around, option: ast.Call) -> bool:
    """Whether a file of a training calls the function or class that the option stands in, if it stands in one."""
    above = [each for each in script.tree.above(option) if isinstance(each, (ast.FunctionDef, ast.ClassDef))]
    if not above or script.joins:
        return True
    name = above[-1].name
    joining = {path for path, _ in project.trees(r"local_rank|init_process_group|init_dist|DistributedDataParallel")}
    takers = [(path, tree) for path, tree in project.trees(rf"\b{name}\b") if path in joining]
    return any(name in tree.read or name in tree.members for _, tree in takers)


def _is_idle(script: Script, project: Around, option: ast.Call) -> bool:
    """Whether a function adds the option to a parser that it is handed, and nobody calls it, here or elsewhere."""
    function, parser = script.function(option), getattr(option.func, "value", None)
    bound = script.tree.lookup(parser.id, parser) if isinstance(parser, ast.Name) else []
    if not isinstance(function, ast.FunctionDef) or not any(isinstance(each.node, ast.arg) for each in bound):
        return False
    name = function.name
    is_named = any(name in each for each in (script.tree.read, script.tree.members)) or function.decorator_list
    return not is_named and not project.others_say(rf"\b{name}\b")


def _is_of_another(script: Script, tree: Tree, node: ast.expr) -> bool:
    """Whether an option is of what a function of the project makes without the command line: of a file, say."""
    made = script.value_in(tree, node.value) if isinstance(node, ast.Attribute) else None
    found = script.defined_in(tree, made.func) if isinstance(made, ast.Call) else None
    return found is not None and not re.search(r"parse_|[Aa]rg|Namespace", ast.unparse(found[1]))


def _is_option(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "local_rank"


def _use(script: Script) -> Evidence | None:
    """Return where the local rank decides about a device; since no variable is read, it is what the option gave."""
    moved = [
        each for each in script.nodes(ast.Call) if isinstance(each.func, ast.Attribute) and each.func.attr in MOVES
    ]
    for call in (*script.calls(*DEVICES), *moved):
        for node in ast.walk(call):
            if isinstance(node, (ast.Name, ast.Attribute)) and _holds(script, node):
                return script.seen(node)
    return None


def _holds(script: Script, node: ast.Name | ast.Attribute) -> bool:
    """Whether a variable holds the local rank, or what was calculated from it."""
    made = script.value(node)
    parts = [each for each in ast.walk(made) if isinstance(each, (ast.Name, ast.Attribute))] if made is not node else []
    return any(script.fact(each) is Fact.LOCAL_RANK for each in (node, *parts))


LAUNCHED = r"-m\s+torch\.distributed\.launch\b(?![^\n]*--?use[_-]env)"
"""A command of the launcher that passes the option."""


@lint
def by_its_launch(script: Script, project: Around) -> Iterator[Finding]:
    """Look for a strict parser that knows --local_rank alone, in a script that torch.distributed.launch is to start."""
    if script.frameworks - {"fvcore", "mmcv", "mmengine"} or "--local_rank" not in script.text:
        return
    if project.says("local-rank|deepspeed"):
        return
    is_of_library = re.search(OF_LIBRARIES, script.text) and _is_launched_beside(script, project)
    if not script.joins and not is_of_library and not _joins_by_helper(script):
        return
    told = {each.place for each in _about_devices(script, project)}
    for call in script.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            names = [each.value for each in call.args if isinstance(each, ast.Constant)]
            if "--local_rank" not in names or "--local-rank" in names or script.place(call) in told:
                continue
            if _is_lenient(script, call.func.value) or _is_idle(script, project, call):
                continue
            if "torch.distributed.launch" in script.code(call) or _is_launched(script, project):
                yield Finding(
                    "torch.distributed.launch of torch 2 passes --local-rank, which this parser does not know: it ends "
                    "the script",
                    (script.seen(call, "--local-rank as well"),),
                    Fix(
                        "know the option by both spellings, or start with torchrun",
                        diff=f"-{script.code(call)}\n+{script.code(call.func)}"
                        '("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))',
                        edits=(_hyphened(script, call),),
                    ),
                    script.place(call),
                )


def _joins_by_helper(script: Script) -> bool:
    """Whether the file calls a helper of the project that makes the process group."""
    last = max(script.nodes(ast.Call), key=lambda each: each.lineno, default=None)
    return last is not None and script.joins_elsewhere(last)


GOES_ON = r"(?:(?!--?use[_-]env)[^\n]|\\[ \t]*\n)*"
"""The rest of a command, over several lines, that hands the local rank over as an option."""
OF_LIBRARIES = r"\binit_dist\(|\bRunner\b"
"""What makes the process group in scripts of OpenMMLab's libraries."""


def _is_launched_beside(script: Script, project: Around) -> bool:
    """Whether a launch script in the same folder starts the file by torch.distributed.launch."""
    name = re.escape(script.path.replace("\\", "/").rpartition("/")[2])
    command = rf"torch\.distributed\.launch\b{GOES_ON}[\s/]{name}\b"
    return any(re.search(command, text) for text in project.launches_beside())


def _is_launched(script: Script, project: Around) -> bool:
    """Whether a command of torch.distributed.launch stands in the script, or one that names it in a launch script."""
    if re.search(LAUNCHED, script.text):
        return True
    name = re.escape(script.path.replace("\\", "/").rpartition("/")[2])
    return project.in_launches(rf"torch\.distributed\.launch\b{GOES_ON}\b{name}")
