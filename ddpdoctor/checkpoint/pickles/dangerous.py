"""Which names in a pickle can do harm when it is unpickled in full, and what they do.

A name need not be that of its own module: ``torch.serialization.os.system`` is ``os.system``. What honest pickles name
as well, such as ``builtins.getattr`` for a bound method, is not listed.
"""

from __future__ import annotations

import re

COMMANDS, CODE, FILES, NETWORK = "runs commands", "runs code", "changes files", "opens connections"
SYSTEM = r"(?:os|posix|nt|posixpath|ntpath)"
HARMFUL = tuple(
    (re.compile(rf"(?:.*\.)?(?:{pattern})"), harm)
    for pattern, harm in (
        (rf"{SYSTEM}\.(?:system|popen\d?|exec\w+|spawn\w+|posix_spawnp?|fork\w*|startfile|kill|killpg)", COMMANDS),
        (r"subprocess\.\w.*", COMMANDS),
        (r"_posixsubprocess\.\w+", COMMANDS),
        (r"pty\.(?:spawn|fork)", COMMANDS),
        (r"asyncio\.(?:subprocess\.)?create_subprocess_\w+", COMMANDS),
        (r"(?:builtins|__builtins__)\.(?:eval|exec|execfile|compile|__import__|breakpoint)", CODE),
        (r"importlib\.(?:import_module|__import__|reload)", CODE),
        (r"sys\.modules", CODE),
        (r"runpy\.\w+", CODE),
        (r"marshal\.loads?", CODE),
        (r"ctypes\.\w.*", CODE),
        (r"code\.(?:interact|InteractiveInterpreter|InteractiveConsole)(?:\..*)?", CODE),
        (r"(?:timeit\.(?:timeit|repeat)|(?:cProfile|profile)\.run(?:ctx)?|pdb\.run\w*)", CODE),
        (r"numpy\.testing\.(?:_private\.)?utils\.runstring", CODE),
        (r"pip\.(?:main|_internal\..*)", CODE),
        (r"torch\.(?:load|hub\.load\w*|utils\.cpp_extension\.load\w*)", CODE),
        (
            rf"{SYSTEM}\.(?:remove|unlink|rmdir|removedirs|rename|renames|replace|truncate|chmod|chown|symlink|link)",
            FILES,
        ),
        (r"(?:builtins|io|_io)\.open", FILES),
        (r"shutil\.(?:rmtree|move|copy\w*|chown)", FILES),
        (r"_?socket\.(?:socket|create_connection|create_server)", NETWORK),
        (r"urllib\.request\.\w+", NETWORK),
        (r"requests\.(?:api\.)?(?:get|post|put|delete|request)", NETWORK),
        (r"webbrowser\.\w+", NETWORK),
    )
)


MODULES = frozenset(
    """
    os posix nt posixpath ntpath subprocess _posixsubprocess pty asyncio builtins __builtins__ importlib sys runpy
    marshal ctypes code timeit cProfile profile pdb numpy pip torch io _io shutil socket _socket urllib requests
    webbrowser
    """.split()
)  # one of which is in each name that is listed


def harm_of(name: str) -> str:
    """Return what a dotted name does when it is called; empty where nothing bad is known."""
    if MODULES.isdisjoint(name.split(".")):
        return ""
    return next((harm for pattern, harm in HARMFUL if pattern.fullmatch(name)), "")
