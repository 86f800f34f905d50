"""The watch where a framework expects a callback: one module a framework, which imports it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version


def needs(package: str, least: tuple[int, ...], *others: str) -> None:
    """See that a framework is there, in a version that has what its module here uses.

    Raises:
        ImportError: it is not installed under any of these names, or is older; in one line.
    """
    wanted = ".".join(map(str, least))
    for name in (package, *others):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        numbers = tuple(int(part) for part in found.split(".")[: len(least)] if part.isdecimal())
        if numbers < least:
            raise ImportError(f"ddpdoctor.callbacks needs {name} {wanted} or newer: {found} is installed")
        return
    raise ImportError(f"ddpdoctor.callbacks needs {package} {wanted} or newer, and it is not installed")


@contextmanager
def parts_of(package: str) -> Iterator[None]:
    """Import from a framework what its module here uses.

    Raises:
        ImportError: this version has no such name any more; in one line.
    """
    try:
        yield
    except (ImportError, AttributeError) as exc:
        raise ImportError(f"ddpdoctor.callbacks does not know {package} {version(package)}: {exc}") from None
