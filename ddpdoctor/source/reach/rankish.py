"""What can be another on each rank, by its words and by what it was given: tests that can depend on the rank."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.source.reach.parts import parts, unconverted
from ddpdoctor.source.text.bindings import Binding, dotted
from ddpdoctor.source.text.names import resolve
from ddpdoctor.source.values.bound import OPTIONS, given, is_of_options, values
from ddpdoctor.source.values.parsed import is_parsed

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Tree

RANKISH = re.compile(
    r"rank|main|master|primary|chief|leader|is_first|gpu|local|proc_?id|process_(?:id|index|zero)|node|host|device|worker"
    r"|zero|last_process|coordinator|save|logger|writer|verbose|head|is_root|root_only|should|(?<!ou)tpu|xla|^pid$|^nr$"
    r"|enabled|^do_",
    re.IGNORECASE,
)
"""Words in whose presence a test is taken to depend on the rank, where that cannot be shown."""
OF_PLACES = re.compile(
    r"rank|main|master|primary|leader|gpu|local|proc_?id|process_(?:id|index)|node|host|device|worker|(?<!ou)tpu|xla"
    r"|^pid$",
    re.IGNORECASE,
)
"""Those of them that a path has which is another on each rank."""
HOW_OFTEN = re.compile(
    r"(?:save|checkpoint|ckpt)_?(?:model_?)?(?:last|best|top|every|freq\w*|interval|steps?|epochs?|period|per_epoch)(?:_\w+)?$|^save_(?:dir|path|folder)$",
    re.IGNORECASE,
)
"""What looks like such a word, and says how often something is saved, or where."""
ON_DISK = re.compile(r"local_?(?:path|file|filename|dir|folder|copy|zip|archive|cache)(?:_\w+)?$", re.IGNORECASE)
"""Names of what is on the disk of this machine, in distinction to what is elsewhere."""
COUNTS = re.compile(
    r"^(?:num|n|nr|number_of)_?(?:gpus?|nodes?|devices|workers?|procs|process(?:es)?|hosts?|proc_nodes?)(?:_per_(?:node|host))?$"
    r"|^n?(?:gpus|procs|processes|ranks)_per_(?:node|host)$|^nprocs?$|^n?nodes$",
    re.IGNORECASE,
)
"""Names of how many there are, which all ranks are told alike."""
SAME_ON_ALL = frozenset(
    "torch.cuda.device_count torch.cuda.is_available torch.distributed.is_available torch.distributed.is_initialized"
    " torch.device".split()
)
OF_A_PROCESS = re.compile(r"rank|gpu|node|device|^nr$")
"""Words that an option has which can be another for each process, whatever the file stores in it."""
SWITCHES = re.compile(r"save|logger|writer|verbose|head|should|enabled|^do_", re.IGNORECASE)
"""Words that an option has which says whether something is done, on all ranks, unless the project stores there more."""
KINDS = frozenset(("cpu", "gpu", "cuda"))
"""Kinds of device, which a file writes as texts."""


def is_rankish(tree: Tree, test: ast.expr, depth: int = 4, words: re.Pattern[str] = RANKISH) -> bool:
    """Whether a test can depend on the rank: by a word in it, or in what its names were assigned."""
    key = test, depth, words.pattern
    if key not in tree.rankish:
        tree.rankish[key] = _is_rankish(tree, test, depth, words)
    return tree.rankish[key]


def _is_rankish(tree: Tree, test: ast.expr, depth: int, words: re.Pattern[str]) -> bool:
    for node in parts(test):
        if is_shared(tree, node, depth):
            continue
        text = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_plain(tree, node):
            text = node.value
        is_named = isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and dotted(node) is not None)
        found = values(tree, node) if is_named and isinstance(node, ast.expr) else []
        is_known = _is_switch(tree, found, text) or _is_on_disk(found, text) or _is_told(tree, found)
        if words.search(HOW_OFTEN.sub("", text)) and not is_known:
            return True
        found = [each for each in found if each.whole is None or not OPTIONS.match(text)]
        if _is_counted(tree, node):
            continue
        if depth and any(_is_given_rankish(tree, each, depth - 1, words) for each in found):
            return True
        if depth and _is_stored_rankish(tree, node, depth - 1, words):
            return True
    return False


def _is_on_disk(found: list[Binding], text: str) -> bool:
    """Whether a name says where something is on this machine, and is given what can be read: ``local_path``."""
    return ON_DISK.match(text) is not None and bool(found) and all(each.value is not None for each in found)


def _is_told(tree: Tree, found: list[Binding]) -> bool:
    """Whether a name is a parameter for which all calls pass ``True``, ``False`` or ``None``, whatever it is called."""
    if len(found) != 1 or not isinstance(found[0].node, ast.arg):
        return False
    passed = [each for _, each in given(tree, found[0]) or ()]
    said = [each.value for each in passed if isinstance(each, ast.Constant)]
    is_known = bool(said) and len(said) == len(passed)
    return is_known and all(each is None or isinstance(each, bool) for each in said)  # 0 is a number, a rank say


def _is_counted(tree: Tree, node: ast.AST) -> bool:
    """Whether it is asked how long something is: the loaders of all ranks have as many batches."""
    match tree.parents.get(node):
        case ast.Call(func=ast.Name(id="len"), args=[counted]):
            return counted is node
    return False


def _is_given_rankish(tree: Tree, binding: Binding, depth: int, words: re.Pattern[str]) -> bool:
    if binding.whole is not None:
        return any(is_rankish(there, each, depth, words) for there, each in given(tree, binding) or ())
    return binding.value is not None and is_rankish(tree, unconverted(tree, binding.value), depth, words)


def _is_stored_rankish(tree: Tree, node: ast.AST, depth: int, words: re.Pattern[str]) -> bool:
    """Whether another file of the project stores in this option of the run what can depend on the rank."""
    if tree.stored is None or not isinstance(node, ast.Attribute) or not is_of_options(node):
        return False
    return any(is_rankish(there, each, depth, words) for there, each in tree.stored(node.attr))


def _is_switch(tree: Tree, found: list[Binding], text: str) -> bool:
    """Whether a name without a word of places is given, once, what is the same on all ranks.

    That is a literal, or what is made of options of the command line alone: ``enabled = args.every > 0``.
    """
    value = found[0].value if len(found) == 1 and not OF_PLACES.search(text) else None
    return value is not None and _is_of_options_alone(tree, value)


def _is_of_options_alone(tree: Tree, value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.Attribute(value=ast.Name() as held):
            return is_parsed(tree, held) and is_shared(tree, value, 1)
        case ast.BoolOp(values=made):
            return all(_is_of_options_alone(tree, each) for each in made)
        case ast.Compare(left=left, comparators=others):
            return all(_is_of_options_alone(tree, each) for each in (left, *others))
        case ast.UnaryOp(operand=inner):
            return _is_of_options_alone(tree, inner)
    return False


def is_shared(tree: Tree, node: ast.AST, depth: int) -> bool:
    """Whether a node is an option of the command line, which is the same on all ranks unless the file changes it.

    So is how many GPUs there are, and whether there are any.
    """
    if isinstance(node, (ast.Attribute, ast.Name)) and resolve(tree, node) in SAME_ON_ALL:
        return True
    if isinstance(node, (ast.Attribute, ast.Name)) and COUNTS.match(
        node.id if isinstance(node, ast.Name) else node.attr
    ):
        return True
    if not isinstance(node, ast.Attribute) or OF_A_PROCESS.search(node.attr) or values(tree, node):
        return False
    if isinstance(node.value, ast.Name) and is_parsed(tree, node.value):
        return not (depth and _is_stored_rankish(tree, node, depth - 1, RANKISH))
    if tree.stored is None or not is_of_options(node) or RANKISH.search(SWITCHES.sub("", node.attr)):
        return False
    return not (depth and _is_stored_rankish(tree, node, depth - 1, RANKISH))


def _is_plain(tree: Tree, text: ast.Constant) -> bool:
    """Whether a text is alike in each process: the name of a program, a kind of device that is no key, an option."""
    parent = tree.parents.get(text)
    if isinstance(parent, ast.Subscript) and _is_use(tree, parent, str(text.value)):
        return True
    asks = isinstance(parent, (ast.Subscript, ast.Call, ast.keyword, ast.Compare))
    return text.value == "__main__" or (text.value in KINDS and not asks)


def _is_use(tree: Tree, option: ast.Subscript, name: str) -> bool:
    """Whether an option of a dict says whether something is used, on all ranks: ``opt["use_logger"]``."""
    if not name.startswith("use_") or RANKISH.search(SWITCHES.sub("", name)):
        return False
    given = [each for node in tree.of(ast.Assign) for each in node.targets if isinstance(each, ast.Subscript)]
    stored = {each.slice.value for each in given if isinstance(each.slice, ast.Constant)}
    return OPTIONS.match((dotted(option.value) or "").rpartition(".")[2]) is not None and name not in stored
