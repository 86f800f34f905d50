"""All modules of this room, in the order in which they replace what they watch."""

from __future__ import annotations

from ddpdoctor.watch.rank.hooks import (
    backward,
    clipping,
    communications,
    compiling,
    functional,
    groups,
    models,
    optimizers,
    schedules,
)
from ddpdoctor.watch.rank.hooks.data import built, loaders, sampled_by_hand
from ddpdoctor.watch.rank.hooks.parallel import (
    distributed_checkpoint,
    horovod,
    joining_in,
    pipelines,
    rpc,
    sharding,
    tensor_parallel,
)
from ddpdoctor.watch.rank.hooks.process import builds, errors, exits, files, opens, ray_workers

EVERY = (
    backward,
    builds,
    built,
    clipping,
    communications,
    compiling,
    distributed_checkpoint,
    errors,
    exits,
    files,
    functional,
    groups,
    horovod,
    joining_in,
    loaders,
    models,
    opens,
    optimizers,
    pipelines,
    ray_workers,
    rpc,
    sampled_by_hand,
    schedules,
    sharding,
    tensor_parallel,
)
