"""How command line parsers refuse an option."""

from __future__ import annotations


def refused(option: str) -> str:
    """Give the pattern with which argparse, transformers' HfArgumentParser, absl and click refuse the option."""
    return (
        r"(?:unrecognized arguments:|not used by the HfArgumentParser:|Unknown command line flag|[Nn]o such option:?)"
        rf"[^\n]*?\b{option}\b"
    )
