"""SageMaker's library of collectives, smddp, is asked for in an image that does not have it.

## What happens

`import smdistributed.dataparallel.torch.torch_smddp` registers the backend `smddp`. It is in some of AWS's training
images, each built for one torch and one CUDA: "ModuleNotFoundError: No module named 'smdistributed'" in another image.
The wheel alone, installed by pip, lacks the library beside it: "libsmddpcpp.so: cannot open shared object file".

## How to be sure

`pip list | grep smdistributed; ldconfig -p | grep smddp` in the image.

## How to mend it

Use NCCL, which each of these images has (`torch_distributed` in the estimator), or an image that AWS lists for smddp,
with its torch.

## Versions and sources

Holds for smdistributed.dataparallel 1.4 to 2.x, torch 1.10 to 2.4; not run here. Source:
aws/deep-learning-containers#3989; SageMaker, "Supported frameworks, AWS Regions, and instances types" of its data
parallelism library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP134", Severity.ERROR)


@log_pattern(
    r"ModuleNotFoundError: No module named ['\u2018](?P<module>smdistributed(?:\.dataparallel)?[\w.]{0,40})['\u2019]"
    r"|ImportError: (?P<library>libsmddp\w{0,20}\.so)[.\d]{0,8}: cannot open shared object file"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Name what is missing: all of it, or the library beside the wheel."""
    if match["module"] and "modelparallel" in match["module"]:
        return
    yield Finding(
        f"{match['module'] or match['library']}, of SageMaker's library of collectives (smddp), is not in this image",
        (record.proof(match, "an image that AWS lists for smddp, of this torch"),),
        Fix(
            "use NCCL, which the same image has; or an image with smddp",
            diff="-import smdistributed.dataparallel.torch.torch_smddp\n-dist.init_process_group('smddp')\n"
            "+dist.init_process_group('nccl')\n"
            "-distribution={'smdistributed': {'dataparallel': {'enabled': True}}}\n"
            "+distribution={'torch_distributed': {'enabled': True}}   # of the estimator",
        ),
        record.place,
    )
