"""An environment variable is misspelt, so nobody reads it.

## What happens

`export CUDA_VISINLE_DEVICES=1` raises no error: CUDA uses all GPUs. With another name misspelt, NCCL chooses its own
interface, or torchrun its own port. The setting that was meant has no effect, and nothing says so.

## How to be sure

ddpdoctor compares the name of each variable with the names that torch, NCCL, CUDA and torchrun read. A name counts as
misspelt when it is one edit away from a known name (two in long names), is no known name itself, and differs by more
than a plural or a number. Where the right name is set as well, the misspelt one has no effect, and the finding is a
note. To look at them by hand:

    env | grep -E 'CUDA|NCCL|MASTER|RANK'

In a source (`ddpdoctor lint`): `os.environ` is given such a name; in a file that starts trainings, it is exported or
handed to a container under such a name, or under another word for it (MASTER_ADDRESS), and neither that file nor a
Python file reads it. A name that people expect and that neither torch nor NCCL has (NCCL_TIMEOUT) is a note: a library
beside them can read it.

## How to mend it

Set the variable that is read to the same value, and unset the misspelt one. Correct the name where it is set: in the
job script, the .bashrc or the image.

    export CUDA_VISIBLE_DEVICES=1; unset CUDA_VISINLE_DEVICES

## Versions and sources

The known names are those of torch 2.2 to 2.13 and NCCL 2.19 to 2.28. Sources: torchrun and torch.distributed
documentation; NCCL documentation, "Environment Variables"; CUDA C++ Programming Guide.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Severity, lint, misspelt, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Around, Facts, LaunchScript, Script

AILMENT = Ailment("DDP101", Severity.WARNING)


OTHER_WORDS = {
    "MASTER_ADDRESS": "MASTER_ADDR",
    "NCCL_SOCKET_IFNAMES": "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_INTERFACE": "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAMES": "GLOO_SOCKET_IFNAME",
    "CUDA_VISIBLE_GPUS": "CUDA_VISIBLE_DEVICES",
}
"""What people write for a name, further from it than a slip of the fingers."""


IMAGINED = {
    "NCCL_TIMEOUT": 'the time limit of collectives is given to init_process_group("nccl", timeout=timedelta(hours=1))',
    "TORCH_NCCL_TIMEOUT": "the time limit of collectives is given to init_process_group(timeout=timedelta(hours=1))",
    "GLOO_TIMEOUT": 'the time limit of collectives is given to init_process_group("gloo", timeout=timedelta(hours=1))',
    "TORCH_DISTRIBUTED_TIMEOUT": "the time limit of collectives is given to init_process_group(timeout=...)",
}
"""Names that neither torch nor NCCL reads, and that people expect; where what they mean is set instead."""
SET_IN_THE_SCRIPT = Fix(
    "set it where the group is made",
    diff='+dist.init_process_group("nccl", timeout=datetime.timedelta(hours=1))\n'
    "or, with transformers:\n+TrainingArguments(..., ddp_timeout=3600)\n"
    "or, with Accelerate:\n"
    "+Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(hours=1))])",
)


@probe
def in_the_environment(facts: Facts) -> Iterator[Finding]:
    """Compare each variable's name with the known ones."""
    others = {name: known for name, known in OTHER_WORDS.items() if name in facts.environ}
    for name, known in (misspelt(facts.environ) | others).items():
        yield Finding(
            f"{name!r} is set, and {_nobody(name)} reads it: the variable is named {known}",
            (Evidence(f"{name}={facts.environ[name]}", known, "environment"),),
            Fix("set the variable that is read", command=f"export {known}={shlex.quote(facts.environ[name])}"),
            Place(variable=name),
            severity=Severity.NOTE if known in facts.environ or name != name.upper() or _own(name) else None,
        )
    for name, instead in IMAGINED.items():
        if name in facts.environ:
            yield Finding(
                f"neither torch nor NCCL reads {name}: {instead}",
                (Evidence(f"{name}={facts.environ[name]}", "set where the group is made", "environment"),),
                SET_IN_THE_SCRIPT,
                Place(variable=name),
                severity=Severity.NOTE,
            )


def _own(name: str) -> bool:
    """Whether the script can read a name by itself that torch and NCCL do not read."""
    return name in OTHER_WORDS and not name.startswith(("NCCL_", "GLOO_"))


def _nobody(name: str) -> str:
    return "neither torch nor NCCL" if _own(name) else "nothing"


@lint
def in_source(script: Script) -> Iterator[Finding]:
    """Look for a misspelt name where the script sets a variable."""
    for node in script.nodes(ast.Subscript):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name)), ctx=ast.Store()):
                right = misspelt([name]).get(name) if script.resolve(value) == "os.environ" else None
                if right is not None:
                    yield Finding(
                        f"nobody reads {name}: {right} is meant",
                        (script.seen(node, right),),
                        Fix("write the name as it is read", edits=(script.replaced(node.slice, f'"{right}"'),)),
                        script.place(node),
                    )


@lint
def in_launch_script(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a misspelt name where a file sets a variable, and nobody is seen to read it."""
    for setting in launch.settings:
        right = OTHER_WORDS.get(setting.name) or misspelt([setting.name]).get(setting.name)
        if right is None or launch.reads(setting.name) or project.mentions(setting.name):
            continue
        if setting.command is not None and setting.name.islower() and not setting.command.words:
            continue  # the script's own variable, which it hands to nobody
        yield Finding(
            f"nobody reads {setting.name}: {right} is meant",
            (launch.seen(setting.line, right),),
            Fix(
                "write the name as it is read",
                edits=(launch.replaced(setting.begin, setting.begin + len(setting.name), right),),
            ),
            launch.place(setting.line, setting.begin),
        )


@lint
def that_is_none(launch: LaunchScript, project: Around) -> Iterator[Finding]:
    """Look for a name that sounds as if torch or NCCL read it, where no file is seen to do so."""
    for setting in launch.settings:
        instead = IMAGINED.get(setting.name)
        if instead is not None and not launch.reads(setting.name) and not project.mentions(setting.name):
            yield Finding(
                f"neither torch nor NCCL reads {setting.name}: {instead}",
                (launch.seen(setting.line, "set where the group is made"),),
                SET_IN_THE_SCRIPT,
                launch.place(setting.line, setting.begin),
                severity=Severity.NOTE,
            )
