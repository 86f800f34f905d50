"""Watches a script in a process that stays when the script has ended, as ranks of the pool do.

A fork server imports this module once for all ranks; all that a watch needs is imported with it.
"""

from __future__ import annotations

import encodings.ascii  # noqa: F401 - as all that is not used here: see above
import multiprocessing.popen_fork
import multiprocessing.queues
import multiprocessing.synchronize  # noqa: F401
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil  # noqa: F401
import torch.distributed.elastic.multiprocessing.errors  # noqa: TID253 - ranks import this module alone
import torch.utils.file_baton  # noqa: TID253 - as above

from ddpdoctor.registry import load_built_in
from ddpdoctor.watch.failure_explainer import Explainer
from ddpdoctor.watch.rank.hooks import every  # noqa: F401
from ddpdoctor.watch.rank.install import attach

with suppress(ImportError):  # not in every torch; where it is, the first step imports it
    import torch.profiler._cupti_monitor  # noqa: F401 - as above
Explainer(load_built_in()).prepare()  # a rank that fails asks them why


@contextmanager
def watched_script() -> Iterator[None]:
    """Watch the script that runs in this block, in a process that stays when the script has ended."""
    watch = attach()
    try:
        yield
    except BaseException as exc:
        if watch is not None:
            watch.recorder.failed(exc)
        raise
    if watch is not None:
        watch.recorder.ends()
