"""Which checks a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ddpdoctor.registry import find

if TYPE_CHECKING:
    from ddpdoctor.check import Check


def select(checks: tuple[Check, ...], names: str, option: str) -> tuple[Check, ...]:
    """Give the checks that a comma-separated list of areas, codes and slugs names.

    Raises:
        click.BadParameter: a name is none of these.
    """
    chosen: list[Check] = []
    areas = {check.area for check in checks}
    for name in filter(None, (name.strip() for name in names.split(","))):
        match = find(checks, name)
        if match is None and name not in areas:
            raise click.BadParameter(
                f"{name!r} is no area ({', '.join(sorted(areas))}), and no code or slug that `ddpdoctor list` shows",
                param_hint=option,
            )
        chosen += [check for check in checks if check is match or check.area == name]
    return tuple(check for check in checks if check in chosen)
