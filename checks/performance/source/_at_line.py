"""What a line of the user's own does, by what stands there: sleep, write a file, go through parameters one by one."""

from __future__ import annotations

import ast
import builtins
import functools
import re

from ddpdoctor.check import Tree, calls_at, last_name, resolve, tree_of

from .._files import READERS, READS_OPENED, READS_PATH, opens_to_read
from ._filled import fills
from ._row_losses import computes_rows
from ._samples import goes_through_samples

ASLEEP, WRITTEN, HOOK, EVALUATED, READ = "asleep", "file written", "hook", "evaluated", "file read"
CONVERTED = "converted"
CONVERTS = {"torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor", "numpy.array", "numpy.asarray"}
PARAMETERS, NUMBERS, SAMPLES = "parameters one by one", "numbers one by one", "samples one by one"
FILLED, ROWS = "filled piece by piece", "losses row by row"
WRITES = {"flush", "savefig", "to_csv", "imwrite", "imsave", "save_image"}
INTO = re.compile(r"\bopen\(|log|file|\bf\b|\bfh\b|std(out|err)", re.IGNORECASE)
SUMMARIES = {"add_histogram", "add_image", "add_images", "add_figure"}
DUMPS = {"os.fsync", "json.dump", "pickle.dump", "yaml.dump", "numpy.save", "numpy.savez", "numpy.savetxt"}
WRITERS = {"write", "writelines"}
HOOKS = re.compile(r"register_(module_)?(forward|full_backward)(_pre)?_hook$")
OF_TENSORS = {"register_hook", "register_post_accumulate_grad_hook"}
OF_PARAMETERS = re.compile(r"\.(named_)?(parameters|buffers)\(\)|\.state_dict\(\)|_foreach_|\bparam_groups\b")
IN_PYTHON = re.compile(r"\.(numpy|tolist|cpu)\(\)|argmax\(|\.topk\(")
READS = re.compile(r"\.(item|tolist)\(\)|\bfloat\(")
SAYS = re.compile(r"\.(item|tolist|cpu|numpy|info|debug)\(|\b(float|print)\(")
MIXES = re.compile(r"\blerp_?\(|1(\.0)? - [\w.]+|\balpha ?=|\b_?foreach_lerp|\bdecay\b")
RESOLVED = 3  # names that are followed one after another
Loop = ast.For | ast.comprehension


@functools.cache
def what_at(file: str, number: int) -> tuple[str, str, int] | None:
    """Return what a line does, and the file and line of what all of it is: a loop, a hook, or the line itself."""
    tree = tree_of(file)
    for call in calls_at(file, number):
        if kind := _call_kind(tree, call):
            return kind, file, number
    if _reads_opened(tree, number):
        return READ, file, number
    if (hook := _hook(tree, number)) is not None:
        return HOOK, file, hook
    filled = None
    for node, loop in _loops(tree, number):
        what = _loop_kind(tree, node, loop)
        if what == FILLED:  # all loops around it that do no more are one with it
            filled = what, file, node.lineno
        elif what or filled:
            return filled or (what, file, node.lineno)
    return filled


def _call_kind(tree: Tree, call: ast.Call) -> str:
    """Return what a call does, by its name; empty where that says nothing."""
    named = resolve(tree, call.func) or ""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if named == "time.sleep":
        return ASLEEP
    if named in DUMPS or last in WRITES | SUMMARIES or (last in WRITERS and _into_a_file(tree, call)):
        return WRITTEN
    if named in CONVERTS:
        return CONVERTED
    reads = named in READERS or last in READS_PATH or (last in READS_OPENED and _into_a_file(tree, call))
    return READ if reads else ""


@functools.cache
def averages(file: str, number: int) -> bool:
    """Whether a line stands in a function that mixes old weights with new ones: an average of the weights."""
    text = function_text(file, number)
    return OF_PARAMETERS.search(text) is not None and MIXES.search(text) is not None


@functools.cache
def function_text(file: str, number: int) -> str:
    """Return the source of the innermost function that a line stands in; empty outside of any."""
    functions = _functions(tree_of(file), number)
    return ast.unparse(max(functions, key=lambda each: each.lineno)) if functions else ""


def _into_a_file(tree: Tree, call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and INTO.search(_resolved(tree, call.func.value)) is not None


def _reads_opened(tree: Tree, number: int) -> bool:
    """Whether a line opens a file to read it, in a with statement, or uses what such a statement has opened."""
    for node in tree.of(ast.With):
        for item in node.items if node.lineno <= number <= (node.end_lineno or 0) else ():
            if not (isinstance(item.context_expr, ast.Call) and opens_to_read(tree, item.context_expr)):
                continue
            name = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else ""
            through = [loop.iter for each, loop in _loops(tree, number) if ".backward(" not in ast.unparse(each)]
            looped = any(isinstance(each, ast.Name) and each.id == name for one in through for each in ast.walk(one))
            used = any(each.id == name and each.lineno == number for each in tree.of(ast.Name))
            if number == node.lineno or looped or used:
                return True
    return False


def loop_text(file: str, number: int) -> str:
    """Return the source of a loop that begins on a line."""
    return next((ast.unparse(node) for node, _ in _loops(tree_of(file), number) if node.lineno == number), "")


def calls_a_function(file: str, number: int, inner_file: str) -> bool:
    """Whether a loop that begins on a line calls a function of the user's: a name that is none of Python's own."""
    tree = tree_of(file)
    made = {each.name for one in (tree, tree_of(inner_file)) for each in one.of(ast.FunctionDef)}
    return any(
        isinstance(call, ast.Call) and (last_name(call.func) in made or _is_no_builtin(call.func))
        for node, _ in _loops(tree, number)
        if node.lineno == number
        for call in ast.walk(node)
    )


def _is_no_builtin(called: ast.expr) -> bool:
    return isinstance(called, ast.Name) and not hasattr(builtins, called.id)


def _loops(tree: Tree, number: int) -> list[tuple[ast.stmt | ast.expr, Loop]]:
    """Return the loops that a line stands in, innermost first, no further out than its function."""
    found: list[tuple[ast.stmt | ast.expr, Loop]] = [
        (node, node) for node in tree.of(ast.For) if node.lineno <= number <= (node.end_lineno or 0)
    ]
    made: list[ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp]
    made = [*tree.of(ast.ListComp), *tree.of(ast.GeneratorExp), *tree.of(ast.SetComp), *tree.of(ast.DictComp)]
    found += [(node, node.generators[0]) for node in made if node.lineno <= number <= (node.end_lineno or 0)]
    innermost = max((each.lineno for each in _functions(tree, number)), default=0)
    inside = [each for each in found if each[0].lineno > innermost]
    return sorted(inside, key=lambda each: (each[0].lineno, each[0].col_offset), reverse=True)


def _functions(tree: Tree, number: int) -> list[ast.FunctionDef]:
    return [node for node in tree.of(ast.FunctionDef) if node.lineno <= number <= (node.end_lineno or 0)]


def _loop_kind(tree: Tree, node: ast.stmt | ast.expr, loop: Loop) -> str:
    text = ast.unparse(node)
    if ".backward(" in text or "DataLoader(" in text:  # a loop of steps, or of runs
        return ""
    through = _resolved(tree, loop.iter)
    if OF_PARAMETERS.search(through):
        return "" if READS.search(text) else PARAMETERS  # who reads each of them is told by its calls
    if isinstance(loop, ast.For) and goes_through_samples(tree, loop):
        return SAMPLES
    if IN_PYTHON.search(through) or _reads_each(loop, text):
        return NUMBERS
    if isinstance(loop, ast.For):
        return FILLED if fills(loop) else ROWS if computes_rows(tree, loop) else ""
    return ""


def _reads_each(loop: Loop, text: str) -> bool:
    """Whether a loop reads what it goes through, number by number: the elements of a tensor."""
    names = [re.escape(each.id) for each in ast.walk(loop.target) if isinstance(each, ast.Name)]
    return any(re.search(rf"\b{name}\.(item|tolist)\(\)|\b(float|int)\({name}\)", text) for name in names)


def _resolved(tree: Tree, node: ast.expr, depth: int = RESOLVED) -> str:
    """Return an expression with what the names in it are bound to, a few deep."""
    text = ast.unparse(node)
    for name in (each for each in ast.walk(node) if isinstance(each, ast.Name)) if depth else ():
        for binding in tree.lookup(name.id, name):
            if binding.value is not None and binding.value is not node:
                text += " " + _resolved(tree, binding.value, depth - 1)
    return text


def _hook(tree: Tree, number: int) -> int | None:
    """Return the line of the function that a line stands in, where it is registered as a hook.

    Of hooks of tensors those count that read: others make the gradients that the training wants.
    """
    functions = {node.name: node for node in _functions(tree, number)}
    for call in tree.of(ast.Call):
        of_tensors = isinstance(call.func, ast.Attribute) and call.func.attr in OF_TENSORS
        if (
            not isinstance(call.func, ast.Attribute)
            or not (of_tensors or HOOKS.search(call.func.attr))
            or not call.args
        ):
            continue
        given = call.args[0].func if isinstance(call.args[0], ast.Call) else call.args[0]
        name = given.attr if isinstance(given, ast.Attribute) else given.id if isinstance(given, ast.Name) else ""
        hook = functions.get(name)
        if isinstance(given, ast.Lambda) and given.lineno <= number <= (given.end_lineno or 0):
            return given.lineno if not of_tensors or SAYS.search(ast.unparse(given)) else None
        if hook is not None and (not of_tensors or SAYS.search(ast.unparse(hook))):
            return hook.lineno
    return None
