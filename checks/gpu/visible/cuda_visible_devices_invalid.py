"""CUDA_VISIBLE_DEVICES holds entries that name no GPU, or one twice.

## What happens

CUDA reads the list from the left and stops at the first entry that names no GPU. All entries behind it are invisible
too. A GPU that is named twice hides all of them. The training then sees fewer GPUs than planned, or none.

Entries are indices, and beginnings of the UUIDs that `nvidia-smi -L` prints (`GPU-...`, `MIG-...`). `cuda:0`, `all` and
`gpu0` are no entries. Of `0;1` only the number at the beginning is read. Blanks, a comma at the end, and -1 at the end
do no harm.

## How to be sure

ddpdoctor judges each entry of the variable. Whether an index is out of range is judged only where NVML lists the GPUs.
To verify it by hand, compare the number of entries with the number of GPUs that torch sees:

    echo "$CUDA_VISIBLE_DEVICES"; nvidia-smi -L
    python -c "import torch; print(torch.cuda.device_count())"

## How to mend it

Name each GPU once, by its index, with commas between; or unset the variable to use all GPUs.

    export CUDA_VISIBLE_DEVICES=0,1

## Versions and sources

Holds for all versions of torch. Sources: CUDA C++ Programming Guide, "CUDA Environment Variables";
torch.cuda._parse_visible_devices (2.13), which reads the list as the driver does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, NotRun, Place, Severity, probe

if TYPE_CHECKING:
    from ddpdoctor.check import Facts

AILMENT = Ailment("DDP222", Severity.ERROR)
UUID = re.compile(r"GPU-[0-9a-f-]*|MIG-[0-9a-z/-]*", re.ASCII | re.IGNORECASE)
HIDES_ALL = ("", "-1", "NoDevFiles", "none", "void")  # the ways to hide all GPUs on purpose


@probe
def entries(facts: Facts) -> Iterator[Finding]:
    """Judge each entry."""
    setting = facts.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        raise NotRun("CUDA_VISIBLE_DEVICES is not set")
    if setting.strip() in HIDES_ALL:
        return
    count = len(facts.gpus.devices)
    if problem := fault(setting, count):
        plain = re.sub(UUID, "", setting)
        numbers = [int(digits) for digits in re.findall(r"[0-9]+", plain)]
        good = ",".join(dict.fromkeys(str(number) for number in numbers if not count or number < count)) or "0"
        yield Finding(
            f"CUDA_VISIBLE_DEVICES={setting!r}: {problem}",
            (Evidence(setting, "indices of GPUs, each once, with commas between", "environment"),),
            Fix("name each GPU once, by its index", command=f"export CUDA_VISIBLE_DEVICES={good}"),
            Place(variable="CUDA_VISIBLE_DEVICES"),
        )


def fault(setting: str, count: int) -> str:
    """Return what is wrong with the list on a host with ``count`` GPUs (0: not known); empty where nothing is."""
    names = [name.strip() for name in setting.split(",")]
    while len(names) > 1 and names[-1] in ("", "-1"):  # ends the list, where it ends anyway
        names.pop()
    seen: set[str] = set()
    for name in names:
        start = re.match(r"\+?([0-9]+)", name)
        entry = str(int(start[1])) if start else name
        if start is None and not UUID.fullmatch(name):
            return f"{name!r} is no index and no UUID: it and what follows it are invisible"
        if entry in seen:
            return f"{entry} stands there twice: CUDA then shows no GPU at all"
        seen.add(entry)
        if start is not None and start[0] != name:
            return f"{name!r} is read as {entry}, and what stands behind the number is ignored"
        if start is not None and 0 < count <= int(entry):
            return f"there is no GPU {entry}, only 0 to {count - 1}: it and what follows it are invisible"
    return ""
