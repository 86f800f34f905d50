"""Families of exceptions: what each says of the line that raised it, and what to look at there."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ddpdoctor.findings import Fix
from ddpdoctor.shell import shell_quote
from ddpdoctor.source.text.syntax import NO_PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddpdoctor.logs.records import Record

SHOWN = 4  # expressions of a line that are printed
NONE = re.compile(r"'NoneType' object (?:has no attribute '(?P<name>\w+)'|is not (?:callable|subscriptable|iterable))")
MISSING = re.compile(r"object has no attribute '(?P<name>\w+)'")
LACKS = re.compile(r"(?:^|\s)module '(?P<module>[A-Za-z]\w*)' has no attribute '\w+'")
UNDEFINED = re.compile(r"name '(?P<name>\w+)' is not defined|variable '(?P<local>\w+)'")
SERVER = re.compile(
    r"(?P<url>https?://[\w.-]+(?::\d+)?)|host='(?P<host>[^']+)', port=(?P<port>\d+)"
    r"|\bconnect(?:ing|ion)? to (?P<name>[\w.-]+):(?P<at>\d{2,5})\b"
)
LIBRARY = re.compile(r"ImportError: \S*/(?P<module>\w+)\.(?:cpython-|abi3|so\b)")
SHAPES = re.compile(r"(?i:\bshapes?\b|\bsizes?\b|\bdimensions?\b|\bchannels\b)")
NETWORK = frozenset({
    "ClientConnectorError", "CommError", "ConnectError", "ConnectTimeout", "ConnectionAbortedError",
    "ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "HTTPError", "MaxRetryError",
    "NewConnectionError", "ReadTimeout", "RemoteDisconnected", "RpcError", "SSLError", "ServerDisconnectedError",
    "Timeout",
})  # fmt: skip
ERRNO = re.compile(r"\[Errno (\d+)\]")
OF_SYSTEM = {
    "5": Fix(
        "the disk, or the server of the network file system, failed to read or write: look at the host's own log",
        "sudo dmesg -T | tail -n 40 | grep -iE 'i/o error|lustre|nfs|xfs|ext4'; df -h",
    ),
    "11": Fix("the system refused for now: processes, threads or locks are used up", "ulimit -u; ps -eLf | wc -l"),
    "36": Fix("a name is longer than the file system takes: make it of fewer settings", "getconf NAME_MAX ."),
    "107": Fix("the mount of that folder is gone on this host", "mount | grep -iE 'fuse|s3|gcs|nfs'; ls PATH"),
    "116": Fix(
        "another host has replaced or removed that file of a network file system: give each run, or each host, a copy "
        "that nobody changes while it runs",
        "stat -f -c %T PATH; ls -ld --time-style=full-iso PATH   # nfs, lustre; newer than the start of the run",
    ),
    "121": Fix(
        "the server of the network file system failed: look at the host's own log", "sudo dmesg -T | tail -n 40"
    ),
}
BROKEN_FILE = frozenset({
    "BadGzipFile", "BadZipFile", "DecompressionBombError", "EOFError", "LibsndfileError", "UnicodeDecodeError",
    "UnidentifiedImageError", "ArrowInvalid", "error",
})  # fmt: skip


def of_family(record: Record, package: str, root: str = "") -> Fix | None:
    """Return what to look at for an exception of this kind; ``package`` raised it, or the user's own code (empty).

    ``root`` is the exception that it was raised from, as printed.
    """
    name = (root.partition(":")[0] or record.error).rpartition(".")[2]
    if (library := LIBRARY.search(record.proof().seen)) is not None and name == "ImportError":
        return OF_SYSTEM["116"] if "Stale file handle" in record.proof().seen else _of_a_library(library)
    if name in NETWORK:
        return _of_a_server(record)
    for asks in () if package else OWN.get(name, ()):
        if (fix := asks(record)) is not None:
            return fix
    if (number := ERRNO.search(record.proof().seen)) is not None and number[1] in OF_SYSTEM:
        return OF_SYSTEM[number[1]]
    if name in BROKEN_FILE:
        return Fix(
            "a file of the data, or of the run, cannot be read as what it is taken for: let the error name it",
            "except Exception as error: raise RuntimeError(f'reading {path!r}') from error   # around that line",
        )
    return None


def _of_a_library(found: re.Match[str]) -> Fix:
    return Fix(
        f"{found['module']} is compiled, and does not load: import it alone, which tells the whole reason. As a rule "
        "it was built for another torch, Python or CUDA than is installed",
        f"python -c 'import torch, {found['module']}'; pip list | grep -iE 'torch|{found['module'].partition('_')[0]}'",
    )


def _of_an_assertion(record: Record) -> Fix | None:
    tree = _tree(record.code)
    test = tree.test if isinstance(tree, ast.Assert) else None
    parts = [] if test is None else [*_compared(test)]
    return Fix(
        "the code's own test failed at that line: see what it compares, on the rank that raised it",
        f"print({', '.join(parts)})   # above that line" if parts else "python -m pdb SCRIPT   # stops at it",
    )


def _of_none(record: Record) -> Fix | None:
    found = NONE.search(record.proof().seen)
    holders = _holders(record.code, found["name"]) if found else []
    if found is None or not holders or record.users is None:
        return None
    name = holders[0]
    if name.endswith(".grad"):
        return Fix(
            f"{name} is None there: no backward has reached it, it is frozen, or zero_grad() has taken it away",
            "print([name for name, each in model.named_parameters() if each.requires_grad and each.grad is None])"
            "   # right after backward()",
        )
    return Fix(
        f"{name} is None there: see where it gets its value. What is made under a test of the rank, or of a setting, "
        "is None on the other ranks",
        rf"grep -nE '\b{name.rpartition('.')[2]}\b *(:[^=]+)?=[^=]' {shell_quote(record.users.file)}",
    )


def _of_an_attribute(record: Record) -> Fix | None:
    found = MISSING.search(record.proof().seen)
    holders = _holders(record.code, found["name"]) if found else []
    if found is None or not holders:
        return None
    return Fix(
        f"see what {holders[0]} is there, and what it has",
        f"print(type({holders[0]}), [name for name in dir({holders[0]}) if {found['name'][:4]!r} in name])",
    )


def _of_a_module(record: Record) -> Fix | None:
    found = LACKS.search(record.proof().seen)
    if found is None:
        return None
    name = found["module"]
    return Fix(
        f"see what is imported as {name}: a folder {name}/ or a file {name}.py beside the script hides the package, "
        "and so it is where the package is not installed; or its version has not the name",
        f"python -c 'import {name}; print({name}.__path__, {name}.__file__)'; pip show {shell_quote(name)}   # in the "
        "folder of the script",
    )


def _of_a_name(record: Record) -> Fix | None:
    found = UNDEFINED.search(record.proof().seen)
    if found is None or record.users is None:
        return None
    name = found["name"] or found["local"]
    return Fix(
        f"{name} has no value where that line runs: it is misspelt, not imported, or set in a branch or a "
        "loop that was left out, as that of a loader without a batch on this rank",
        rf"grep -nE '\b{name}\b' {shell_quote(record.users.file)}",
    )


def _of_an_index(record: Record) -> Fix | None:
    tree = _tree(record.code)
    held = (
        [] if tree is None else [ast.unparse(each.value) for each in ast.walk(tree) if isinstance(each, ast.Subscript)]
    )
    if not held or "out of range" not in record.proof().seen:
        return None
    lengths = ", ".join(f"len({each})" for each in dict.fromkeys(held[:SHOWN]))
    return Fix("it is shorter than the index: see how long it is on this rank", f"print({lengths})   # above that line")


def _of_a_division(record: Record) -> Fix | None:
    tree = _tree(record.code)
    by = [] if tree is None else [ast.unparse(right) for each in ast.walk(tree) for right in _divisors(each)]
    return Fix(
        "what that line divides by is 0, as the length of a loader or of this rank's share can be",
        f"print({', '.join(dict.fromkeys(by[:SHOWN]))})   # above that line" if by else "print(len(loader))",
    )


def _of_shapes(record: Record) -> Fix | None:
    tree = _tree(record.code)
    if tree is None or not SHAPES.search(record.proof().seen):
        return None
    names = [each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    shapes = ", ".join(f"getattr({each}, 'shape', None)" for each in dict.fromkeys(names[:SHOWN]))
    return Fix("see the shapes that meet at that line", f"print({shapes})") if names else None


def _of_a_server(record: Record) -> Fix:
    found = SERVER.search(record.text)
    if found is None:
        return Fix(
            "a server did not answer this rank, or hung up: see whether it still runs, and what its own log says",
            "ss -tnp | grep python   # on the host of the rank: whom it is connected to",
        )
    if found["name"]:
        return Fix(
            f"{found['name']}:{found['at']} did not answer this rank: try it from the host of the rank, and see "
            "whether the server runs and listens there",
            f"timeout 5 bash -c '</dev/tcp/{found['name']}/{found['at']}' && echo open; getent hosts {found['name']}",
        )
    url = found["url"] or f"http://{found['host']}:{found['port']}"
    return Fix(
        f"{url} did not answer this rank, or hung up: try it from the host of the rank, and read the server's own log",
        f"curl -sS -m 10 -o /dev/null -w '%{{http_code}}\\n' {shell_quote(url)}",
    )


def _tree(code: str) -> ast.stmt | None:
    """Return a line as Python reads it; None where it is a part of a statement."""
    for text in (code, f"{code} pass"):
        try:
            body = ast.parse(text).body
        except NO_PYTHON:
            continue
        return body[0] if body else None
    return None


def _compared(test: ast.expr) -> Iterator[str]:
    """Yield the two sides of a comparison, or the parts of a test, without what is written out."""
    parts: list[ast.expr] = [test]
    match test:
        case ast.Compare(left=left, comparators=others):
            parts = [left, *others]
        case ast.BoolOp(values=parts):
            pass
        case ast.UnaryOp(operand=ast.Call(args=[_, *_] as parts)) | ast.Call(args=[_, *_] as parts):
            pass
    yield from dict.fromkeys(ast.unparse(each) for each in parts[:SHOWN] if not isinstance(each, ast.Constant))


def _holders(code: str, name: str | None) -> list[str]:
    """Return what the attribute is asked of; without a name, what is called, looped over or subscripted."""
    tree = _tree(code)
    if tree is None:
        return []
    found: list[ast.expr] = []
    for each in ast.walk(tree):
        match each:
            case ast.Attribute(attr=attr, value=value) if attr == name:
                found.append(value)
            case ast.Subscript(value=value) | ast.For(iter=value) | ast.Call(func=value) if name is None:
                found.append(value)
    return [ast.unparse(each) for each in found if isinstance(each, ast.Name | ast.Attribute)]


def _divisors(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
        yield node.right


OWN: dict[str, tuple[Callable[[Record], Fix | None], ...]] = {
    "AssertionError": (_of_an_assertion,),
    "AttributeError": (_of_none, _of_a_module, _of_an_attribute),
    "IndexError": (_of_an_index,),
    "NameError": (_of_a_name,),
    "RuntimeError": (_of_shapes,),
    "TypeError": (_of_none,),
    "UnboundLocalError": (_of_a_name,),
    "ValueError": (_of_shapes,),
    "ZeroDivisionError": (_of_a_division,),
}
"""What to ask of an exception that the user's own code raised."""
