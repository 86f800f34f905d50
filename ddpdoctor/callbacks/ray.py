"""The watch in Ray Train: ``TorchTrainer(watched(train_func), scaling_config=...)``.

    from ddpdoctor.callbacks.ray import watched

    trainer = TorchTrainer(watched(train_func), scaling_config=ScalingConfig(num_workers=4))
    trainer.fit()

On a cluster that runs already the workers do not inherit what ``ddpdoctor run`` sets, and this is the way. Ray Train
has callbacks where it controls the workers, and none within them. Each worker's host needs ddpdoctor. Findings are
printed at once; ``report`` is not written, since Ray ends what a worker has started together with the worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ddpdoctor.watch.rank.install import install


def watched(train: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return the training function, watched on each worker from its begin to its end.

    Takes what ``ddpdoctor.install`` takes.
    """

    @functools.wraps(train)
    def train_watched(*args: Any, **kwargs: Any) -> Any:
        with install(**options):
            return train(*args, **kwargs)

    return train_watched
