"""Who calls a function of the file, and with what."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpdoctor.source.text.names import resolve

if TYPE_CHECKING:
    from ddpdoctor.source.text.tree import Function, Tree

SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
PROCESSES = ("torch.multiprocessing.Process", "multiprocessing.Process")
STARTS = frozenset((*SPAWN, *PROCESSES))
"""What starts processes that run a function of the file."""
HARMLESS = {
    "torch.distributed.elastic.multiprocessing.errors.record",
    "torch.no_grad",
    "torch.inference_mode",
    "torch.enable_grad",
    "hydra.main",
    "click.argument",
    "click.command",
    "click.option",
}


def call_sites(tree: Tree, function: Function) -> list[ast.Call] | None:
    """Return the calls of a function; None where it is also used in ways that cannot be followed.

    A function that is handed to ``torch.multiprocessing.spawn`` is called there.
    """
    if function not in tree.sites:
        tree.sites[function] = _call_sites(tree, function)
    return tree.sites[function]


def _call_sites(tree: Tree, function: Function) -> list[ast.Call] | None:
    if isinstance(function, ast.Lambda):
        return None
    if isinstance(tree.parents.get(function), ast.ClassDef):
        is_known = all(is_static(each) or resolve(tree, bare(each)) in HARMLESS for each in function.decorator_list)
        return _of_method(tree, function) if is_known else None
    if any(resolve(tree, bare(each)) not in HARMLESS for each in function.decorator_list):
        return None
    sites = []
    for node in tree.read.get(function.name, ()):
        call = tree.parents[node]
        is_asked = isinstance(call, (ast.UnaryOp, ast.If))  # whether there is one, which calls nobody
        if is_asked or not any(binding.node is function for binding in tree.lookup(node.id, node)):
            continue
        if (started := process_of(tree, node) or _spawned_partly(tree, node)) is not None:
            sites.append(started)
            continue
        if (handed := _handed_on(tree, node) or _started_by(tree, node)) is not None:
            sites += handed
            continue
        if isinstance(call, ast.keyword) and call.arg == "fn":
            call = tree.parents[call]
        if not isinstance(call, ast.Call) or not (call.func is node or resolve(tree, call.func) in SPAWN):
            return None
        sites.append(call)
    return sites


def process_of(tree: Tree, node: ast.AST) -> ast.Call | None:
    """Return the call that starts processes, one for each pass of a loop, which run a function that is named here."""
    word = tree.parents[node]
    call = tree.parents[word] if isinstance(word, ast.keyword) and word.arg == "target" else None
    if not isinstance(call, ast.Call) or resolve(tree, call.func) not in PROCESSES:
        return None
    several = any(isinstance(each, (ast.For, ast.ListComp)) for each in tree.above(call))
    return call if several else None


def _spawned_partly(tree: Tree, node: ast.AST) -> ast.Call | None:
    """Return the call of spawn that runs a function with some keywords given: ``spawn(partial(train, args=args))``."""
    part = tree.parents[node]
    if not isinstance(part, ast.Call) or resolve(tree, part.func) != "functools.partial" or part.args != [node]:
        return None
    call = tree.parents[part]
    call = tree.parents[call] if isinstance(call, ast.keyword) and call.arg == "fn" else call
    return call if isinstance(call, ast.Call) and is_spawn(tree, call) and part not in call.args[1:] else None


def _spawned(tree: Tree, node: ast.AST) -> ast.Call | None:
    """Return the call that starts processes which run what is named here."""
    word = tree.parents[node]
    call = tree.parents[word] if isinstance(word, ast.keyword) and word.arg == "fn" else word
    if isinstance(call, ast.Call) and is_spawn(tree, call) and call.func is not node and node not in call.args[1:]:
        return call
    return process_of(tree, node) or _spawned_partly(tree, node)


def is_static(decorator: ast.expr) -> bool:
    """Whether a method is one of no object."""
    return isinstance(decorator, ast.Name) and decorator.id == "staticmethod"


def _handed_on(tree: Tree, node: ast.AST) -> list[ast.Call] | None:
    """Return where a function is called that processes are handed (``Process(target=start, args=(rank, train))``)."""
    pack = tree.parents[node]
    word = tree.parents[pack] if isinstance(pack, ast.Tuple) else None
    call = tree.parents[word] if isinstance(word, ast.keyword) and word.arg == "args" else None
    if not isinstance(pack, ast.Tuple) or not isinstance(call, ast.Call):
        return None
    is_spawn = resolve(tree, call.func) in SPAWN
    first = call.args[0] if is_spawn and call.args else None
    target = first or next((each.value for each in call.keywords if each.arg in {"target", "fn"}), None)
    if not (is_spawn or resolve(tree, call.func) in PROCESSES) or not isinstance(target, ast.Name):
        return None
    found = [each.node for each in tree.lookup(target.id, target)]
    if len(found) != 1 or not isinstance(found[0], ast.FunctionDef):
        return None
    names = [each.arg for each in (*found[0].args.posonlyargs, *found[0].args.args)]
    place = pack.elts.index(node) + (1 if is_spawn else 0)  # type: ignore[arg-type]
    if place >= len(names):
        return None
    reads = [each for each in tree.read.get(names[place], ()) if tree.function(each) is found[0]]
    calls = [call for each in reads if isinstance(call := tree.parents[each], ast.Call) and call.func is each]
    return calls if len(calls) == len(reads) else None


def _started_by(tree: Tree, node: ast.Name) -> list[ast.Call] | None:
    """Return where a function of the file starts or calls the one that it is handed (``run(main, 2)``)."""
    call = tree.parents[node]
    if not isinstance(call, ast.Call) or node not in call.args or not isinstance(call.func, ast.Name):
        return None
    found = [each.node for each in tree.lookup(call.func.id, call)]
    if len(found) != 1 or not isinstance(found[0], ast.FunctionDef):
        return None
    names = [each.arg for each in (*found[0].args.posonlyargs, *found[0].args.args)]
    place = call.args.index(node)
    if place >= len(names):
        return None
    reads = [each for each in tree.read.get(names[place], ()) if tree.function(each) is found[0]]
    calls = [(each, read) for read in reads if isinstance(each := tree.parents[read], ast.Call)]
    run = [each for each, read in calls if each.func is read or (read in each.args[:1] and is_spawn(tree, each))]
    return run if run and len(run) == len(reads) else None


def is_spawn(tree: Tree, call: ast.Call) -> bool:
    """Whether a call starts the ranks by torch.multiprocessing."""
    return resolve(tree, call.func) in SPAWN


def bare(decorator: ast.expr) -> ast.expr:
    """Return what a decorator names, without what it is given."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _of_method(tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call] | None:
    """Return the calls by ``self``; None where another object's attribute has the same name, or it is special."""
    owner = tree.class_of(function)
    is_of_none = any(map(is_static, function.decorator_list))
    if function.name == "__init__" and owner is not None:
        return _of_class(tree, owner)
    if function.name.startswith("__") and function.name.endswith("__"):
        return None
    sites = []
    for node in tree.members.get(function.name, ()):
        call = _spawned(tree, node) or tree.parents[node]
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self" and tree.class_of(node) is owner
        is_own = is_own or made_of(tree, node.value) is owner or (is_of_none and _names(tree, node.value, owner))
        if not is_own or not isinstance(call, ast.Call):
            return None
        if call.func is not node and resolve(tree, call.func) not in STARTS:
            return None
        sites.append(call)
    return sites


def _names(tree: Tree, node: ast.expr, owner: ast.ClassDef | None) -> bool:
    """Whether a name is that of a class."""
    found = [each.node for each in tree.lookup(node.id, node)] if isinstance(node, ast.Name) else []
    return found == [owner]


def _of_class(tree: Tree, owner: ast.ClassDef) -> list[ast.Call] | None:
    """Return the calls of a class; None where it is also used in ways that cannot be followed, or inherited from."""
    sites = []
    for node in tree.read.get(owner.name, ()):
        parent = tree.parents[node]
        if isinstance(parent, ast.Call) and parent.func is node:
            sites.append(parent)
        elif (
            not isinstance(parent, (ast.arg, ast.AnnAssign)) and not _is_asked(parent) and not _is_result(parent, node)
        ):
            return None
    return sites


def _is_result(function: ast.AST, node: ast.Name) -> bool:
    """Whether a name is what a function is annotated to return."""
    return isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.returns is node


def _is_asked(call: ast.AST) -> bool:
    """Whether a call makes no object of the classes that it is given: ``super(Trainer, self)``, ``isinstance``."""
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in {"super", "isinstance"}


def made_of(tree: Tree, node: ast.expr) -> ast.ClassDef | None:
    """Return the class of the file whose object a variable holds, where it is given nothing else."""
    bindings = tree.lookup(node.id, node) if isinstance(node, ast.Name) else []
    match bindings[0].value if len(bindings) == 1 else None:
        case ast.Call(func=ast.Name(id=name) as named):
            found = [each.node for each in tree.lookup(name, named)]
            return found[0] if len(found) == 1 and isinstance(found[0], ast.ClassDef) else None
    return None


def some_sites(tree: Tree, function: Function) -> list[ast.Call]:
    """Return calls of a function that are certain; there can be others."""
    sites = call_sites(tree, function)
    owner = tree.parents.get(function)
    if sites is not None or isinstance(function, ast.Lambda) or not isinstance(owner, ast.ClassDef):
        return sites or []
    if any(resolve(tree, bare(each)) not in HARMLESS for each in function.decorator_list):
        return []
    found = []
    for node in tree.members.get(function.name, ()):
        call = tree.parents[node]
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self" and tree.class_of(node) is owner
        if isinstance(call, ast.Call) and call.func is node and (is_own or made_of(tree, node.value) is owner):
            found.append(call)
    return found


def seen_sites(tree: Tree, function: ast.FunctionDef) -> list[tuple[Tree, ast.Call]]:
    """Return calls of a function that are certain, of its own file and of others, each with the file's tree."""
    abroad = tree.callers(function) if tree.callers is not None else []
    return [*((tree, each) for each in some_sites(tree, function)), *abroad]
