"""How a metric by which all ranks, or a framework, decide is made one of all ranks."""

from __future__ import annotations

from ddpdoctor.check import ACCELERATE, FABRIC, RAY, Fix, Monitored, Training

PLATEAU = "ReduceLROnPlateau"
TRAINER = "Trainer"
WITH_TRAINER = Fix(
    "leave evaluate to Trainer: compute_metrics gets the predictions of all ranks",
    diff="-def evaluate(self, ...):\n+trainer = Trainer(..., compute_metrics=compute_metrics)",
)
REDUCED = Fix(
    "reduce the metric on all ranks before the scheduler sees it",
    diff="+total = torch.tensor([loss_sum, count], device=device)\n+torch.distributed.all_reduce(total)\n"
    "-scheduler.step(loss_sum / count)\n+scheduler.step((total[0] / total[1]).item())",
)


def reduced_in(training: Training) -> Fix:
    """Return how the metric is reduced, in the words of the framework that trains."""
    framework = training.framework
    reduced = {
        ACCELERATE.name: "+total = accelerator.reduce(torch.tensor([loss_sum, count], device=accelerator.device))\n",
        FABRIC.name: '+total = fabric.all_reduce(torch.tensor([loss_sum, count]), reduce_op="sum")\n',
    }.get(framework.name if framework is not None else "")
    if reduced is None:
        return REDUCED
    return Fix(REDUCED.summary, diff=f"{reduced}-scheduler.step(loss_sum / count)\n"
               "+scheduler.step((total[0] / total[1]).item())")  # fmt: skip


def fix_of(event: Monitored, training: Training) -> Fix:
    """Return how a metric is reduced, by what decides by it."""
    if event.by == TRAINER:
        return WITH_TRAINER
    if event.by == PLATEAU:
        return reduced_in(training)
    if event.by == RAY.name:
        return Fix(
            "add up what all workers have counted before it is reported: Ray keeps the number of rank 0",
            diff="+counts = torch.tensor([right, seen], dtype=torch.float64)\n+torch.distributed.all_reduce(counts)\n"
            f'-ray.train.report({{"{event.name}": right / seen}}, checkpoint=checkpoint)\n'
            f'+ray.train.report({{"{event.name}": (counts[0] / counts[1]).item()}}, checkpoint=checkpoint)',
        )
    return Fix(
        "average it over the ranks where it is logged; log a torchmetrics object itself",
        diff=f'-self.log("{event.name}", value)\n+self.log("{event.name}", value, sync_dist=True)',
    )
