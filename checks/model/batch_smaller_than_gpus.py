"""A batch has fewer samples than DataParallel has GPUs.

DataParallel splits the first dimension over the GPUs. With fewer samples than GPUs some replicas get nothing;
they are left out, and a forward whose tensors come by keyword or are of unequal length can be called without
an argument ("missing 1 required positional argument" in replica k). It also happens with the last batch of an
epoch.

How to be sure: the factory's file uses DataParallel, the first dimension of the example batch is smaller than
the number of GPUs that are visible.

How to mend it: a batch of at least a sample for each GPU, `drop_last=True`, fewer `device_ids`; better, train
with DDP.

Holds for all versions of torch. Source: torch.nn.parallel.scatter_gather.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor import Card, Evidence, Finding, Fix, NotRun, Place, Severity
from ddpdoctor.check import probe
from ddpdoctor.probe.gpus import Gpus
from ddpdoctor.probe.model_exam import ModelExam

CARD = Card("DDP518", Severity.WARNING)


@probe
def on_these_gpus(gpus: Gpus, model: ModelExam) -> Iterator[Finding]:
    """Compare the example batch with the number of GPUs, where the file uses DataParallel."""
    count = len(gpus.devices)
    if count < 2:  # noqa: PLR2004 - DataParallel splits over two or more
        raise NotRun(f"needs 2 GPUs, found {count}")
    step = model.steps.alone()[0]
    line = model.source.data_parallel
    if line is not None and step.batch_size is not None and step.batch_size < count:
        yield Finding(
            f"the batch has a first dimension of {step.batch_size} and DataParallel {count} GPUs: "
            f"{count - step.batch_size} get nothing",
            (Evidence(f"{step.batch_size} samples", f"at least {count}", f"{model.batch}"),),
            Fix(
                "use no more GPUs than there are samples, or a larger batch",
                diff="-model = nn.DataParallel(model)\n"
                f"+model = nn.DataParallel(model, device_ids=list(range({step.batch_size})))",
            ),
            place=Place(file=model.source.file, line=line),
        )
