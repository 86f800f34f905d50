"""CUDA_VISIBLE_DEVICES holds entries that name no GPU, or one twice.

CUDA reads the list from the left and stops at the first entry that names no GPU: what stands behind it is invisible
too. A GPU that stands there twice hides all of them. `cuda:0`, `all`, `0;1` and `gpu0` are no entries; indices, and
beginnings of UUIDs that `nvidia-smi -L` prints (`GPU-...`, `MIG-...`), are.

To be sure: `python -c "import torch; print(torch.cuda.device_count())"`.

Source: CUDA C++ Programming Guide, "CUDA Environment Variables". Whether an index is out of range is judged only
where NVML lists the GPUs. Holds for all versions of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.facts import Facts

CARD = Card("DDP104", Severity.ERROR)
ENTRY = re.compile(r"\s*(\d+|GPU-[0-9a-f-]*|MIG-[0-9A-Za-z/-]*)\s*", re.ASCII)
HIDES_ALL = ("", "-1", "NoDevFiles", "none", "void")  # the ways to hide all GPUs on purpose


@probe
def entries(facts: Facts) -> Iterator[Finding]:
    """Judge each entry."""
    setting = facts.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        raise NotRun("CUDA_VISIBLE_DEVICES is not set")
    if setting.strip() in HIDES_ALL:
        return
    names = setting.split(",")
    numbers = [int(name) for name in names if name.strip().isascii() and name.strip().isdigit()]
    count = len(facts.gpus.devices)
    problem = ""
    if bad := [name for name in names if not ENTRY.fullmatch(name)]:
        problem = f"{bad[0]!r} is no index and no UUID: it and what follows it are invisible"
    elif twice := [name for name, times in Counter(name.strip() for name in names).items() if times > 1]:
        problem = f"{twice[0]} stands there twice: CUDA then shows no GPU at all"
    elif count and (beyond := [number for number in numbers if number >= count]):
        problem = f"there is no GPU {beyond[0]}, only 0 to {count - 1}: it and what follows it are invisible"
    if problem:
        good = ",".join(dict.fromkeys(str(number) for number in numbers if not count or number < count)) or "0"
        yield Finding(
            f"CUDA_VISIBLE_DEVICES={setting!r}: {problem}",
            (Evidence(setting, "indices of GPUs, each once, with commas between", "environment"),),
            Fix("name each GPU once, by its index", command=f"export CUDA_VISIBLE_DEVICES={good}"),
            Place(variable="CUDA_VISIBLE_DEVICES"),
        )
