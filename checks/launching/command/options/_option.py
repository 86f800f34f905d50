"""How command line parsers refuse an option."""

from __future__ import annotations


def refused(option: str) -> str:
    """Return the pattern with which argparse, HfArgumentParser, absl, fire and click refuse the option."""
    return (
        r"(?:[Uu]nrecognized (?:arguments|options):|not used by the HfArgumentParser:|Unknown command line flag"
        r"|Could not consume arg:|[Nn]o such option:?)"
        rf"[^\n]{{0,299}}?\b{option}\b"
    )
