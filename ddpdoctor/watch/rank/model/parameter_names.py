"""Names for parameters of modules that nobody has wrapped: those of the user's own variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ddpdoctor.watch.user_frames import frames, is_users, variables_of

DEEPEST = 40  # frames that are looked at
WIDEST = 400  # variables of a frame


def modules_in_sight() -> dict[str, Any]:
    """Return the modules that the user's frames hold by name, or an object of theirs holds; innermost first."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for frame in _users_frames():
        scopes = [variables_of(frame)]
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            scopes.append(frame.f_globals)
        for variables in scopes:
            for name, value in list(variables.items())[:WIDEST]:
                for path, module in _modules(name, value):
                    found.setdefault(path, module)
    return found


def _users_frames() -> Iterator[Any]:
    for depth, frame in enumerate(frames()):
        if depth >= DEEPEST:
            return
        if is_users(frame.f_code.co_filename):
            yield frame


def _modules(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    from torch.nn import Module

    if isinstance(value, Module):
        yield name, value
    elif isinstance(vars_ := getattr(value, "__dict__", None), dict) and not isinstance(value, type):
        yield from ((f"{name}.{key}", each) for key, each in list(vars_.items())[:50] if isinstance(each, Module))


def names_of(parameters: Sequence[Any], known: dict[int, str]) -> tuple[str, ...]:
    """Name parameters: those that are ``known``, by identity, and others by the variable that holds their module."""
    return tuple(name for name, _ in names_and_holders(parameters, known))


def names_and_holders(parameters: Sequence[Any], known: dict[int, str]) -> tuple[tuple[str, str], ...]:
    """Return what ``names_of`` does, and the variable that holds the module; empty where that is not asked for."""
    names = {identity: (name, "") for identity, name in known.items()}
    for path, module in modules_in_sight().items():
        for name, parameter in module.named_parameters():
            names.setdefault(id(parameter), (f"{path}.{name.removeprefix('module.')}", path))
    return tuple(
        names.get(id(each), (f"parameter {at} of shape {list(each.shape)}", "")) for at, each in enumerate(parameters)
    )
