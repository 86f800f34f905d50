"""The script cannot import what it needs: a module is not there, or is of a version that does not fit.

## What happens

The ranks end before the training begins: "ModuleNotFoundError: No module named 'timm'", "cannot import name ... from",
"Descriptors cannot be created directly", "compiled using NumPy 1.x cannot be run in NumPy 2". The launcher's traceback
below it (ChildFailedError) says nothing of it. Where one rank or one host alone fails so, the import stands under `if
rank == 0`, or that host's environment is another one; the others then fail in their first communication.

## How to be sure

The launcher says which Python runs the ranks ("of binary: /opt/venv/bin/python"); ask that one: `python -c "import
timm"`. A dotted name whose first part was found ("No module named 'pytorch_lightning.strategies'") means that the
package is there, in another version. torchrun puts the folder of the script on the path, not the one that it is
started in, as `python -m` does.

## How to mend it

Install what is missing into that Python, or bring the two packages to versions that fit.

## Versions and sources

Holds for all versions. Sources: CPython documentation, "The import system"; protobuf 4.21 and 5.26, release notes;
NumPy 2.0 migration guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Log, Record, Severity, log_pattern

from ._modules import BINARY, DISTRIBUTIONS, asking, missing, of_another_version, shadowed

AILMENT = Ailment("DDP426", Severity.ERROR)
FROM_CHECKPOINT = re.compile(r"torch[/\\]serialization\.py|pickle\.(?:load\b|Unpickler)")
SYSTEM = {
    "GL": "apt-get install -y libgl1   # or: pip uninstall -y opencv-python; pip install opencv-python-headless",
    "EGL": "apt-get install -y libegl1",
    "GLU": "apt-get install -y libglu1-mesa",
    "OSMesa": "apt-get install -y libosmesa6",
    "gthread": "apt-get install -y libglib2.0-0",
    "glib": "apt-get install -y libglib2.0-0",
    "SM": "apt-get install -y libsm6 libxext6 libxrender1",
    "Xext": "apt-get install -y libsm6 libxext6 libxrender1",
    "Xrender": "apt-get install -y libsm6 libxext6 libxrender1",
    "sndfile": "apt-get install -y libsndfile1",
    "gomp": "apt-get install -y libgomp1",
    "ibverbs": "apt-get install -y libibverbs1 ibverbs-providers",
    "rdmacm": "apt-get install -y librdmacm1",
    "numa": "apt-get install -y libnuma1",
    "aio": "apt-get install -y libaio-dev   # DeepSpeed's offload to NVMe",
}
"""Libraries that packages load and no wheel brings, by what their name begins with, and Debian's package of each."""
OWN = re.compile(r"(?:site|dist)-packages[/\\]")


@log_pattern(
    r"(?:^|\n)(?:\w+: )?ModuleNotFoundError: No module named '(?P<name>(?!megatron\.core\.datasets\.helpers)[\w.]+)'"
    r"(?P<shadow>; '[\w.]+' is not a package)?",
    context=(BINARY,),
)
def of_a_module(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Tell a package that is missing from one of another version, and from a file that has its name."""
    name = match["name"]
    top, _, inner = name.partition(".")
    if top == "torch" or FROM_CHECKPOINT.search(record.text):
        return
    found = log.first(BINARY)
    python = found[1][1] if found else "python"
    seen: tuple[Evidence, ...] = (record.proof(match, "a module of this name"),)
    seen += (found[0].proof(found[1], ""),) if found else ()
    if match["shadow"]:
        yield shadowed(record, name, seen)
    elif inner and name not in DISTRIBUTIONS:
        yield of_another_version(record, name, seen)
    else:
        yield missing(record, name, python, seen)


@log_pattern(
    r"(?m)^(?P<python>\S*python[\w.]*): (?:No module named (?P<module>[\w.]+)$"
    r"|Error while finding module specification for '(?P<asked>[\w.]+)' "
    r"\((?:ModuleNotFound|Import)Error: No module named '(?P<absent>\w+)'\))"
)
def of_a_launcher(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read what Python says of ``-m``: the package is not there, or is older than the module that is asked for."""
    asked = match["asked"] or match["module"]
    top, absent = asked.partition(".")[0], match["absent"] or ""
    if not absent and "." not in asked:
        absent = asked
    is_old = asked == "torch.distributed.run" and not absent
    yield Finding(
        f"{match['python']} has no package {absent}, and so cannot start {asked}"
        if absent
        else f"the {top} of {match['python']} has no module {asked}"
        + (": it is older than 1.9, which brought torchrun" if is_old else ""),
        (record.proof(match, f"a Python with {absent or asked}"),),
        Fix(
            f"install {absent or 'a newer ' + top} into that Python, or start with the one that has it",
            command=f"{match['python']} -m pip install {'' if absent else '--upgrade '}{DISTRIBUTIONS.get(top, top)}\n"
            f'which -a python python3 torchrun; python -c "import {top}; print({top}.__file__, {top}.__version__)"',
        ),
        record.place,
    )


@log_pattern(
    r"(?:^|\n)ImportError: cannot import name '(?P<name>\w+)' from '(?P<package>(?!torch\b)[\w.]+)'"
    r" \((?P<file>[^)\n]+)\)"
)
def of_a_name(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise an installed package that lacks what is asked of it; a cycle of imports is another matter."""
    package = match["package"]
    if "circular import" in record.text or not OWN.search(match["file"]):
        return
    top = "google.protobuf" if package.startswith("google.protobuf") else package.partition(".")[0]
    asks = asking(record, top)
    yield Finding(
        f"the installed {top} has no {package}.{match['name']}" + (f", which {asks} asks for" if asks else ""),
        (record.proof(match, f"a {top} with {match['name']}"),),
        Fix(
            f"bring {top} and {asks or 'the script'} to versions that fit each other",
            command=f"pip install --upgrade {DISTRIBUTIONS.get(top, top)}" + (f" {asks}" if asks else ""),
        ),
        record.place,
    )


@log_pattern(
    r"TypeError: Descriptors cannot (?:not )?be created directly"
    r"|Couldn't build proto file into descriptor pool[^\n]{0,40}duplicate file name \(?(?P<twice>[\w./]+\.proto)"
    r"|\[libprotobuf FATAL[^\n]*\] This program "
    r"(?:was compiled against|requires) version (?P<built>[\d.]+) of the Protocol Buffer runtime library, "
    r"(?:which is not compatible with|but) the installed version (?:\(|is )(?P<has>[\d.]+\d)"
)
def of_protobuf(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read protobuf's own comparison with what was generated, or compiled, for another version."""
    if match["twice"]:
        said = f"two installed packages bring the protobuf file {match['twice']}, and both are imported"
        mend = "pip list | grep -iE 'proto|sentencepiece|onnx|tensor'; pip install --upgrade protobuf"
    elif match["built"]:
        said = f"a library is compiled for protobuf {match['built']}, and {match['has']} is installed"
        wanted = ".".join(match["built"].split(".")[:2])
        mend = f"pip install 'protobuf=={wanted}.*'"
    else:
        asks = asking(record, "google")
        said = f"the installed protobuf is too new for the code that {asks or 'a package'} has generated with protoc"
        mend = f"pip install --upgrade {asks}" if asks else "pip install 'protobuf<=3.20.3'"
    yield Finding(
        said,
        (record.proof(match, "one version of protobuf for all packages"),),
        Fix(
            "install the protobuf that the packages were made for, or those packages anew",
            command=f"{mend}   # or, slow and for a first try: export PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python",
        ),
        record.place,
    )


@log_pattern(
    r"(?P<numpy>A module that was compiled using NumPy 1\.x cannot be run in\nNumPy 2[^\n]*|numpy\.dtype size changed, "
    r"may indicate binary incompatibility|numpy\.core\.multiarray failed to import)"
    r"|version `(?P<symbol>[A-Z]{3,}\w*_[\w.]+)' not found \(required by (?P<library>[^)\n]+)\)"
)
def of_compiled(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise a compiled package that was built for another NumPy or C++ library."""
    if not record.error:
        return
    if match["numpy"]:
        said, mend = "a compiled package was built for another major version of NumPy", "pip install 'numpy<2'"
    else:
        said = f"{match['library']} was built for a newer C or C++ library than this host has ({match['symbol']})"
        mend = "conda install -c conda-forge libstdcxx-ng   # GLIBC_ itself comes with the system alone"
    yield Finding(
        said,
        (record.proof(match, "packages that are built for each other"),),
        Fix("install versions that fit each other", command=mend),
        record.place,
    )


@log_pattern(
    r"(?:ImportError|OSError): (?P<library>lib(?:" + "|".join(map(re.escape, SYSTEM)) + r")[\w-]{0,20}\.so[.\d]{0,12})"
    r": cannot open shared object file",
    plain=True,
)
def of_the_system(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find a library that no wheel brings: an image without a screen, or without the system's packages."""
    library = match["library"]
    name = next(each for each in SYSTEM if library.startswith(f"lib{each}"))
    asks = asking(record, "torch")
    yield Finding(
        f"{library} is not installed on this host" + (f", and {asks} is made to load it" if asks else ""),
        (record.proof(match, "a library of the system"),),
        Fix("install the system's package on each host, or into the image", command=SYSTEM[name]),
        record.place,
    )


@log_pattern(
    r"ImportError: Using [^\n]{1,80} requires `(?P<needs>[\w-]+(?:>=[\d.]+)?)`"
    r"|AssertionError: (?P<has>[A-Za-z]+==[\w.]+) is used but incompatible\. Please install (?P<wants>[^\n]{1,80}?)\.?$"
    r"|(?P<alias>AttributeError: module 'numpy' has no attribute '(?:bool|int|float|object|complex|str|typeDict)')"
)
def of_a_version(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Read a package's own comparison of versions, and what went with NumPy 1.24 and 2.0."""
    if match["needs"]:
        said, mend = f"{match['needs']} is not installed", f"pip install '{match['needs']}'"
    elif match["has"]:
        said = f"{match['has']} is installed, and {match['wants']} is asked for"
        mend = f"pip install '{match['wants'].replace(' ', '')}'"
    else:
        said, mend = "the installed NumPy no longer has a name that the code uses", "pip install 'numpy<1.24'"
    yield Finding(
        said,
        (record.proof(match, "versions that fit each other"),),
        Fix("install a version that fits, or bring the code to the one that is there", command=mend),
        record.place,
    )
