"""What users type for options and arguments: read, refused or completed before anything else is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ddpdoctor.facets import BadTarget
from ddpdoctor.registry import find, load_checks
from ddpdoctor.suggest import did_you_mean, why_no_file

if TYPE_CHECKING:
    from ddpdoctor.examine.target import Target
    from ddpdoctor.facets import Check

    ParamType = click.ParamType[Any, Any]
else:
    ParamType = click.ParamType  # click 8.1 knows no type arguments


class CheckNames(ParamType):
    """A comma-separated list of areas, codes and slugs; its value are the checks that they name, in their order."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Check, ...]:
        """Look the names up, and refuse the first that is unknown."""
        checks = load_checks()
        areas = {check.area for check in checks}
        chosen: set[Check] = set()
        for name in filter(None, (name.strip() for name in value.split(","))):
            match = find(checks, name)
            if match is None and name not in areas:
                hint = (
                    did_you_mean(name, (*areas, *(check.slug for check in checks)))
                    or f"; the areas are {', '.join(sorted(areas))}"
                )
                self.fail(f"there is no check or area {name}{hint}", param, ctx)
            chosen |= {match} if match else {check for check in checks if check.area == name}
        return tuple(check for check in checks if check in chosen)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Complete the last name of the list."""
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{each.value}", help=each.help) for each in completed(last, areas=True)]


class TargetName(ParamType):
    """FILE.py:NAME or MODULE:NAME; its value is a Target whose file or module is there."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Look for the file or the module."""
        from ddpdoctor.examine.target import parse

        try:
            return parse(value)
        except BadTarget as exc:
            self.fail(str(exc), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Leave it to the shell, which knows files."""
        return [CompletionItem(incomplete, type="file")]


class CheckpointPath(ParamType):
    """A file, or a folder, that is there."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Look whether something is there."""
        if not (Path(value).is_file() or Path(value).is_dir()):
            self.fail(why_no_file(value), param, ctx)
        return without_dash(str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Leave it to the shell, which knows files."""
        return [CompletionItem(incomplete, type="file")]


def without_dash(path: str) -> str:
    """Return a path that no command takes for an option, so that a command with it in can be pasted."""
    return f"./{path}" if path.startswith("-") else path


CHECKS, TARGET, CHECKPOINT = CheckNames(), TargetName(), CheckpointPath()


def known_names() -> list[str]:
    """Return all that can stand in a list of checks: areas, codes, slugs."""
    return list(_titles(areas=True))


def completed(incomplete: str, *, areas: bool) -> list[CompletionItem]:
    """Return the codes, slugs and areas that begin so."""
    begin = incomplete.lower().replace("_", "-")
    known = _titles(areas=areas)
    return [CompletionItem(name, help=title) for name, title in known.items() if name.lower().startswith(begin)]


def _titles(*, areas: bool) -> dict[str, str]:
    checks = load_checks()
    named = {check.area: f"all checks of {check.area}" for check in checks} if areas else {}
    return named | {name: check.title for check in checks for name in (check.code, check.slug)}
