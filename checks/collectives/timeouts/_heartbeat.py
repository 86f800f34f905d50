"""When the heartbeat monitor's message is about the training, and when about its end."""

from __future__ import annotations

from ddpdoctor.check import Log, Record

from ._waits import STUCK

HEART = r"watchdog got stuck for \d+ seconds|Heartbeat monitor timed out!|due to ProcessGroupNCCL watchdog hang"
ENDED = (
    r"['\"]train_runtime['\"]: |`Trainer\.fit` stopped: |\bTraining (?:completed|complete|finished|done)\b"
    r"|wandb: Run (?:history|summary)|View run at: https?://"
)
SIZES = r"workMetaList_\.size\(\)=\d+"
BESIDE = (STUCK, ENDED, HEART, SIZES)


def alone(record: Record, log: Log) -> bool:
    """Whether this is the first such message, in the midst of a training, and nothing says more."""
    first = log.first(HEART)
    sizes = {found[0] for _, found in log.find(SIZES)}
    return (
        first is not None
        and first[0] is record
        and log.first(STUCK) is None
        and len(sizes) < 2  # noqa: PLR2004 - two sizes differ: ranks-diverge
        and log.before(record, ENDED) is None
    )
