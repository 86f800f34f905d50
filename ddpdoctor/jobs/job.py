"""What a job is: the request that goes from the pool's client to its fork server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Job:
    """Real ranks in fresh processes.

    ``payload`` is a pickled ``(function, args)``, or None for a script job, which runs ``argv`` as ``__main__``.
    ``backend`` is the backend of the default process group, None for no group. ``deadline`` is in seconds.
    ``around`` (``module:name``) makes a context manager that each rank of a script job runs its script in.
    ``modules`` are imported once by the server, for all ranks to come.
    ``environ`` is laid over the server's environment; None removes a variable.
    """

    ranks: int
    deadline: float
    environ: Mapping[str, str | None]
    payload: bytes | None = None
    backend: str | None = None
    argv: tuple[str, ...] = ()
    around: str = ""
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Twin:
    """Asks the server to fork another one, which has this folder, and the connection that is sent next.

    ``modules`` are imported before, once for all twins.
    """

    home: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The server has imported torch and takes jobs; ``problem`` is the traceback where it could not.

    ``pid`` is the server's.
    """

    problem: str = ""
    pid: int = field(default_factory=os.getpid)
