"""A C++ or CUDA extension cannot be built on this host.

## What happens

DeepSpeed and others compile their operators when they are first used, on each host, in each rank: "Error building
extension 'cpu_adam'", "Ninja is required to load C++ extensions", or DeepSpeed's "Installed CUDA version 12.2 does not
match the version torch was compiled with 11.7, unable to compile cuda/cpp extensions"; torch.compile does so as well:
"Failed to find C compiler". Megatron, and what is built on it, runs `make` in its own folder before it reads the data:
"Failed to compile the C++ dataset helper functions". What comes afterwards ("'DeepSpeedCPUAdam' object has no attribute
'ds_opt_adam'") is only the object that was not made.

## How to be sure

The compiler's own first error stands above the exception: "fatal error: Python.h: No such file or directory", "nvcc:
not found", "unsupported GNU version". `ds_report` lists what DeepSpeed can build here.

## How to mend it

Install what is missing: the CUDA toolkit of torch's own major version (`torch.version.cuda`; CUDA_HOME points to it),
a compiler that it supports, ninja, Python's headers. Or build once, for all hosts: `DS_BUILD_OPS=1 pip install
deepspeed`.

## Versions and sources

Holds for torch 2.2 to 2.13 and DeepSpeed 0.8 to 0.18. Source: torch.utils.cpp_extension; deepspeed's
op_builder/builder.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Ambiguity, Finding, Fix, Log, Record, Role, Severity, log_pattern

AILMENT = Ailment("DDP132", Severity.ERROR)
CUDA = (
    r"Installed CUDA version (?P<here>[\d.]+) does not match the version torch was compiled with (?P<torch>[\d.]+), "
    r"unable to compile"
    r"|The detected CUDA version \((?P<found>[\d.]+)\) mismatches the version that was used to compile\s+PyTorch "
    r"\((?P<wanted>[\d.]+)\)"
)
BUILDING = r"Error building extension '(?P<name>[^'\n]+)'"
NINJA = r"Ninja is required to load C\+\+ extensions"
COMPILER = (
    r"fatal error: (?P<header>[^\n:]+): No such file or directory|nvcc: (?:command )?not found|nvcc fatal *: [^\n]+"
    r"|unsupported GNU version[^\n]*|No such file or directory: '[^'\n]*/nvcc'"
)
IMPORTED = (
    r"No module named 'megatron\.core\.datasets\.helpers(?:_cpp)?'"
    r"|cannot import name 'helpers(?:_cpp)?' from 'megatron\.core\.datasets'"
)
HELPERS = r"Failed to compile the C\+\+ dataset helper functions|Making C\+\+ dataset helpers module failed, exiting"
MAKE = (
    r"make(?:\[\d+\])?: \*\*\* (?P<absent>No targets specified and no makefile found)"
    r"|make(?:\[\d+\])?: \*\*\* [^\n]{0,120}? Error \d+"
    r"|(?:python3-config|make|g\+\+): (?:command )?not found|No such file or directory: 'make'"
)
ENTERED = r"make(?:\[\d+\])?: Entering directory [`'](?P<folder>[^'\n]+)'"
BUILD = "ds_report"
TRITON = (
    r"CalledProcessError: Command '?\[[^\n]{0,300}?/(?P<compiler>gcc|cc|clang"
    r"|x86_64[\w-]+)'[^\n]{0,1500}?(?:cuda_utils|triton|main\.c|launcher)"
)
NO_COMPILER = r"RuntimeError: Failed to find (?:a )?C compiler|InvalidCxxCompiler: No working C\+\+ compiler found"
LINKER = r"ld(?:\.\w+)?: cannot find -l(?P<library>\w+)"


@log_pattern(CUDA)
def of_another_cuda(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two versions; where DeepSpeed accepts a pair, it says so and builds."""
    here, wanted = match["here"] or match["found"], match["torch"] or match["wanted"]
    yield Finding(
        f"extensions cannot be built: the CUDA toolkit here is {here}, and torch was built with {wanted}",
        (record.proof(match, f"a CUDA toolkit {wanted}"),),
        Fix(
            f"point CUDA_HOME to a toolkit of CUDA {wanted}, or install the torch for CUDA {here}",
            command=f"export CUDA_HOME=/usr/local/cuda-{wanted} PATH=/usr/local/cuda-{wanted}/bin:$PATH",
        ),
        record.place,
    )


@log_pattern(TRITON, context=(COMPILER, LINKER))
def of_triton(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Read what Triton's small C programs, which it builds on the host, lack."""
    header, library = log.first(COMPILER), log.first(LINKER)
    lacks = f"the header {header[1]['header']}" if header and header[1]["header"] else ""
    lacks = f"the library lib{library[1]['library']}.so" if library else lacks
    first = library or header
    if library:
        mend = (
            "ldconfig -p | grep libcuda.so; export TRITON_LIBCUDA_PATH=/usr/lib/x86_64-linux-gnu "
            "LIBRARY_PATH=/usr/local/cuda/lib64/stubs"
        )
    else:
        mend = "apt-get install -y python3-dev gcc   # conda: conda install -c conda-forge python gcc_linux-64"
    yield Finding(
        f"torch.compile cannot build Triton's launcher here: {match['compiler']} fails"
        + (f", it finds no {lacks.removeprefix('the ')}" if lacks else ""),
        (
            record.proof(match, "a C compiler, Python's headers and libcuda.so"),
            *((first[0].proof(first[1]),) if first else ()),
        ),
        Fix("install what the build needs, on each host", command=mend),
        record.place,
        ambiguity=None
        if lacks
        else Ambiguity(
            (
                "Python's headers are missing (python3-dev)",
                "libcuda.so is not where the linker looks",
                "gcc does not work",
            ),
            "python -c \"import sysconfig, os; p = sysconfig.get_path('include'); print(p, os.path.exists(p + "
            "'/Python.h'))\"; "
            "ldconfig -p | grep libcuda.so",
        ),
    )


@log_pattern(NO_COMPILER)
def without_a_compiler(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Slim images have none, and torch.compile needs one on each host."""
    language, program = ("C++", "g++") if "C++" in match[0] else ("C", "gcc")
    yield Finding(
        f"torch.compile finds no {language} compiler on this host, and builds what it has generated with one",
        (record.proof(match, f"{program}, clang, or the program that {'CXX' if language == 'C++' else 'CC'} names"),),
        Fix(
            "install one in the image, or on each host; or train without torch.compile",
            command=f"apt-get install -y {program} python3-dev   # conda: conda install -c conda-forge c-compiler "
            "cxx-compiler\nTORCH_COMPILE_DISABLE=1 torchrun ...   # without",
        ),
        record.place,
    )


@log_pattern(HELPERS, context=(MAKE, ENTERED, COMPILER))
def of_megatron(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Megatron's rank 0 builds the index of the samples in C++, and ends without an exception where it cannot."""
    made, compiler = log.first(MAKE), log.first(COMPILER)
    first = compiler or made
    absent = made is not None and made[1]["absent"] is not None
    entered = log.first(ENTERED)
    folder = entered[1]["folder"] if entered else "megatron/core/datasets"
    lacks = f": {first[1][0].strip()}" if first else ""
    yield Finding(
        f"Megatron's C++ helpers for data sets cannot be built{lacks}",
        (record.proof(match, "helpers that are built"), *((first[0].proof(first[1]),) if first else ())),
        Fix(
            "the installed package has no Makefile: install it from its sources, or build the module by hand",
            command=f"pip install pybind11; cd {folder} && ls helpers.cpp && c++ -O3 -shared -std=c++17 -fPIC "
            "$(python3 -m pybind11 --includes) helpers.cpp -o helpers_cpp$(python3-config --extension-suffix)"
            "   # older versions: -o helpers$(...)",
        )
        if absent
        else Fix(
            "install what the build needs, and build once where the error can be read",
            command=f"pip install pybind11; apt-get install -y make g++ python3-dev; make -C {folder}",
        ),
        record.place,
        ambiguity=None
        if first
        else Ambiguity(
            (
                "make or a C++ compiler is missing",
                "pybind11 or Python's headers are missing",
                "the folder is read-only",
            ),
            f"make -C {folder}   # the first error that it prints",
        ),
    )


@log_pattern(IMPORTED)
def of_megatron_unbuilt(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """What Megatron imports was never built: the package was copied, or installed without its extension."""
    yield Finding(
        "Megatron's C++ helpers for data sets have not been built in what is imported",
        (record.proof(match, "helpers that are built"),),
        Fix(
            "build them in the folder that is imported, or install the package, which does so",
            command="pip install pybind11; make -C \"$(python -c 'import importlib.util as u; "
            'print(u.find_spec("megatron.core").submodule_search_locations[0])\')/datasets"',
        ),
        record.place,
    )


@log_pattern(rf"{BUILDING}|{NINJA}", context=(CUDA, COMPILER))
def of_the_compiler(record: Record, match: re.Match[str], log: Log) -> Iterator[Finding]:
    """Quote the compiler's first error, which stands above; without it say what is left."""
    if log.first(CUDA):
        return
    name = match["name"]
    said = f"the extension {name} cannot be built here" if name else "ninja, which builds extensions, is not installed"
    first = log.first(COMPILER)
    yield Finding(
        f"{said}: {first[1][0]}" if name and first else said,
        (record.proof(match, "a build that ends"), *((first[0].proof(first[1]),) if first else ())),
        Fix("install what the build needs", command="pip install ninja; nvcc --version; c++ --version; " + BUILD),
        record.place,
        ambiguity=Ambiguity(
            (
                "a compiler, the CUDA toolkit or Python's headers are missing, or of a version that does not fit",
                "several ranks build in one folder, and one broke the other's files",
            ),
            f"rm -rf ~/.cache/torch_extensions; {BUILD}   # then once with one process: its first error is the cause",
        )
        if name and not first
        else None,
    )


@log_pattern(r"ImportError: (?P<path>[^\n:]{0,300}torch_extensions[^\n:]{1,200}\.so): cannot open shared object file")
def of_what_is_not_there(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Importing looks for what it has just built: the build failed, or another rank has taken it away."""
    name = match["path"].rpartition("/")[2].removesuffix(".so")
    yield Finding(
        f"the extension {name} was not built: {match['path']} is not there",
        (record.proof(match, "the library that the build makes"),),
        Fix(
            "delete what is left of the build, and build once with one process: its first error is the cause",
            command=f"rm -rf {match['path'].rpartition('/')[0]}; {BUILD}; nvcc --version; c++ --version",
        ),
        record.place,
        ambiguity=Ambiguity(
            (
                "an earlier build failed or was stopped, and left its files",
                "several ranks or hosts build in one folder, and one broke the other's files",
            ),
            f"ls -la {match['path'].rpartition('/')[0]}",
        ),
    )


@log_pattern(r"object has no attribute '(?:ds_opt_adam\w*|opt_id)'", role=Role.CONSEQUENCE)
def of_what_was_not_made(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """The optimizer of an extension that was not built."""
    yield Finding(
        "an optimizer of DeepSpeed was not made: its extension is missing",
        (record.proof(match, "the extension is built before"),),
        Fix("read the exception before it: it says why the extension was not built", command=BUILD),
        record.place,
    )
