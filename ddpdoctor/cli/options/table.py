"""A command with settings of its own: a table of its name within those of the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ddpdoctor.cli.options.configured import accepted, setting
from ddpdoctor.cli.options.settings import find_settings
from ddpdoctor.facets import BadTarget
from ddpdoctor.suggest import did_you_mean


class Table(click.Command):
    """A command whose options take their defaults from ``[tool.ddpdoctor.NAME]``; what is typed wins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the table, then what was typed.

        Raises:
            BadTarget: a setting is unknown or has a wrong value.
        """
        if not ctx.resilient_parsing and not set(args) & set(ctx.help_option_names):
            ctx.default_map = self._defaults(ctx)
        return super().parse_args(ctx, args)

    def _defaults(self, ctx: click.Context) -> dict[str, Any] | None:
        settings = find_settings(Path.cwd())
        table = settings.values.get(self.name or "")
        if table is None:
            return None
        where = f"{settings.source}: {self.name}"
        if not isinstance(table, dict):
            raise BadTarget(f"{where} is no table")
        known = {setting(each): each for each in self.params if isinstance(each, click.Option) and accepted(each)}
        for name in table:
            if name not in known:
                raise BadTarget(f"{where}: there is no setting {name}{did_you_mean(name, known)}")
        return {
            known[name].name or "": _value(known[name], value, f"{where}: {name}", ctx) for name, value in table.items()
        }


def _value(option: click.Option, value: Any, where: str, ctx: click.Context) -> Any:
    """Return a setting as the option takes it."""
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in listed):
        raise BadTarget(f"{where} must be a string or an array of strings")
    if option.multiple:
        return listed
    text = ",".join(listed)
    try:
        option.type.convert(text, option, ctx)
    except click.BadParameter as exc:
        raise BadTarget(f"{where}: {exc.message}") from None
    return text
