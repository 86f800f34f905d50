"""Commands whose options are settings of a project as well: each that has a value can stand in the file, by its name.

A file that a command writes is named where it is started; and a switch could not be turned off there.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ddpdoctor.cli.options.settings import find_settings
from ddpdoctor.cli.options.values import CheckNames, CheckpointPath, TargetName
from ddpdoctor.facets import BadTarget
from ddpdoctor.suggest import did_you_mean

if TYPE_CHECKING:
    from ddpdoctor.cli.options.settings import Settings

COMMANDS = ("check", "run")
TABLES = ("lint",)
"""Commands whose settings stand in a table of their own."""


class Configured(click.Command):
    """A command whose options take their defaults from the settings; what is typed wins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the settings, then what was typed.

        Raises:
            BadTarget: a setting is unknown or has a wrong value.
        """
        own_args = set(itertools.takewhile(lambda each: each != "--", args))
        if ctx.resilient_parsing or own_args & set(ctx.help_option_names):
            return super().parse_args(ctx, args)
        settings = find_settings(Path.cwd())
        ctx.default_map = _defaults(settings, ctx) if settings.values else None
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as exc:
            name = exc.param.name if exc.param else None
            if name and exc.param and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                raise BadTarget(f"{settings.source}: {setting(exc.param)}: {exc.message}") from None
            raise


def _defaults(settings: Settings, ctx: click.Context) -> dict[str, Any]:
    """Return the settings of one command, by the names of its parameters; refuse what is wrong for any command."""
    options = _options(ctx)
    known = {setting(each) for listed in options.values() for each in listed}
    for name in settings.values:
        if name not in known and name not in TABLES:
            raise BadTarget(f"{settings.source}: there is no setting {name}{did_you_mean(name, known)}")
    values = {
        each: _value(settings, each, ctx)
        for listed in options.values()
        for each in listed
        if setting(each) in settings.values
    }
    return {each.name: value for each, value in values.items() if each.name and each in options[ctx.info_name or ""]}


def _options(ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the options of each command that can be settings."""
    group = ctx.find_root().command
    assert isinstance(group, click.Group)  # noqa: S101 - a command of another group is none of ours
    commands = {name: group.get_command(ctx, name) for name in COMMANDS}
    return {
        name: [each for each in command.params if isinstance(each, click.Option) and accepted(each)]
        for name, command in commands.items()
        if command is not None
    }


def accepted(option: click.Option) -> bool:
    """Whether an option can be a setting."""
    return not option.is_flag and not isinstance(option.type, click.Path)


def setting(option: click.Parameter) -> str:
    """Return the name of the setting that an option is: its long name."""
    return max(option.opts, key=len).lstrip("-")


def _value(settings: Settings, option: click.Option, ctx: click.Context) -> Any:
    """Return a setting as one would type it; refuse one of another type, or out of range.

    Whether the files are there, which settings name, is asked where they are used.
    """
    where, value = f"{settings.source}: {setting(option)}", settings.values[setting(option)]
    types, wanted = _wanted(option)
    items = value if isinstance(value, list) else []
    if type(value) not in types or not all(isinstance(each, str) for each in items):
        raise BadTarget(f"{where} must be {wanted}, and is {json.dumps(value, default=str)}")
    if isinstance(value, list):
        value = ",".join(value)
    if isinstance(option.type, (TargetName, CheckpointPath)):
        return _from_here(settings.folder, value)
    try:
        option.type.convert(value, option, ctx)
    except click.BadParameter as exc:
        raise BadTarget(f"{where}: {exc.message}") from None
    return value


def _wanted(option: click.Option) -> tuple[tuple[type, ...], str]:
    """Return the types that a setting can have in TOML, and how to say that."""
    if isinstance(option.type, click.types.IntParamType):
        return (int,), "an integer"
    if isinstance(option.type, click.types.FloatParamType):
        return (int, float), "a number"
    if isinstance(option.type, CheckNames):
        return (str, list), "an array of strings"
    return (str,), "a string"


def _from_here(folder: Path, value: str) -> str:
    """Return a path, which starts from the folder of the settings, as one from the current folder; not MODULE:NAME."""
    is_module = ":" in value and not (os.sep in value or ".py:" in value)
    return value if is_module else os.path.relpath(folder / value)
