"""Tests that run on real ranks: a pytest plugin, for ``@pytest.mark.ranks(2)``.

pytest loads it where ddpdoctor is installed. A marked test runs on so many processes of a warm pool, with a process
group between them, and is watched there: it fails where a rank fails, where the ranks hang, and where all of them go
through but the watch finds that they did not train as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

MARK = "ranks"
POOL: pytest.StashKey[Jobs] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(count, backend='gloo', timeout=60, watch=True): run the test on so many ranks of this host, with a "
        "process group over that backend (None: without one), for so many seconds; watch=False: only exceptions count",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test on its ranks; others are called as ever."""
    mark = pyfuncitem.get_closest_marker(MARK)
    if mark is None:
        return None
    from ddpdoctor.pytest.run import asked, run_on_ranks

    run_on_ranks(pyfuncitem, asked(pyfuncitem, mark), pool_of(pyfuncitem.config))
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the pool."""
    pool = config.stash.get(POOL, None)
    if pool is not None:
        pool.close()


def pool_of(config: pytest.Config) -> Jobs:
    """Return the pool of this process; whoever needs it first, such as a marked test, starts it."""
    if POOL not in config.stash:
        import os

        from ddpdoctor.jobs.pool import Jobs

        config.stash[POOL] = Jobs(2, os.environ)
    return config.stash[POOL]
