"""Watches a script in a process that stays when the script has ended, as ranks of the pool do.

A fork server imports this module once for all ranks; all that a watch needs is imported with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ddpdoctor.watch.rank.hooks import errors, files, groups, loaders, models, optimizers  # noqa: F401 - see above
from ddpdoctor.watch.rank.install import attach


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
