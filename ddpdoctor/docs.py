"""Writes what the README shows of the checks: ``python -m ddpdoctor.docs``."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

from ddpdoctor.cli.list import HEADERS, rows
from ddpdoctor.registry import load_checks

BEGIN = "<!-- checks: written by python -m ddpdoctor.docs -->\n"
END = "<!-- /checks -->"


def with_table(text: str) -> str:
    """Give the README's text with the table of the checks as they are now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tabulate(rows(load_checks()), headers=HEADERS, tablefmt='github')}\n\n{END}{after}"


if __name__ == "__main__":
    readme = Path("README.md")
    readme.write_text(with_table(readme.read_text()))
