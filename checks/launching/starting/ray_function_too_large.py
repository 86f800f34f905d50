"""What Ray sends to its workers holds a data set or a model.

## What happens

Ray pickles the training function together with all that it reads from outside of itself: a data set, a model or a
table that the driver has loaded at the top of the script. Above 95 MiB it refuses: "The actor ImplicitFunc is too large
(812 MiB > FUNCTION_SIZE_ERROR_THRESHOLD=95 MiB)". No worker has run a line. Below that it warns and sends it to each
worker.

## How to be sure

The message names the size. What it holds are names that the function reads and does not make itself:

    from ray.util import inspect_serializability; import inspect
    print(inspect.getclosurevars(train_loop_per_worker))

## How to mend it

Load data and model inside `train_loop_per_worker`, from a path in `train_loop_config`; give a Ray Dataset as
`TorchTrainer(datasets={"train": dataset})`; with Ray Tune use `tune.with_parameters(train, data=data)`.

## Versions and sources

Holds for Ray 2 with each torch. Sources: Ray documentation, "Anti-pattern: Closure capturing large objects harms
performance", and the message of Ray itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP462", Severity.ERROR)


@log_pattern(
    r"ValueError: The (?P<what>actor|remote function|task) (?P<name>[^\n]{1,120}?) is too large "
    r"\((?P<size>[\d.]+ MiB) > FUNCTION_SIZE_ERROR_THRESHOLD=(?P<most>[\d.]+ MiB)\)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Yield the size that Ray has measured, and what it refuses."""
    yield Finding(
        f"the {match['what']} {match['name']} holds {match['size']} of what the driver has loaded: Ray sends no more "
        f"than {match['most']} with it",
        (
            record.proof(match),
            Evidence(match["size"], f"less than {match['most']}", "what Ray has pickled"),
        ),
        Fix(
            "load data and model inside the function that each worker runs, from a path in its configuration",
            diff="-data = load(path)\n"
            " def train_loop_per_worker(config):\n"
            "+    data = load(config['path'])\n"
            " ...\n"
            "-TorchTrainer(train_loop_per_worker, ...)\n"
            "+TorchTrainer(train_loop_per_worker, train_loop_config={'path': path}, ...)",
        ),
        record.place,
    )
