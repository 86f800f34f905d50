"""YAML of jobs as commands: containers of Kubernetes, services of docker compose, steps of a workflow."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.launchers import SHELLS
from ddpdoctor.source.launching.shell import Command, read_shell
from ddpdoctor.source.launching.shell_words import NAME, ShellError, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddpdoctor.source.launching.yaml.node import Node

SCRIPTS = ("run", "script", "commands", "setup", "cmd")
"""Keys whose text is a script, or a list of lines of one."""
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*)|\(([A-Za-z_]\w*)\))")
ENVIRONMENTS = ("env", "environment", "envs")
CAPITALS = re.compile(r"[A-Z][A-Z0-9_]{2,}")


@dataclass(frozen=True, slots=True)
class Container:
    """What a node starts: ``commands`` with the variables that it is given, and the node that says so."""

    node: Node
    commands: tuple[Command, ...]
    environment: dict[str, Word]


def containers(documents: list[Node]) -> Iterator[Container]:
    """Yield what starts something in a file."""
    for document in documents:
        for node in _started(document).walk():
            keys = {name for name, _ in node.entries}
            if keys & {"command", "args", "entrypoint", *SCRIPTS}:
                environment = _environment(node)
                found = [_given(each, environment) for each in _commands(node)]
                if found or environment:
                    yield Container(node, tuple(found), environment)


def _started(document: Node) -> Node:
    """Return a document without what others are made of, and nobody starts: ``x-common:``, ``.common:``."""
    entries = [each for each in document.entries if not each[0].startswith(("x-", "."))]
    return replace(document, entries=entries)


def variables(documents: list[Node]) -> Iterator[tuple[str, int, int]]:
    """Yield the variables that a file gives to what it starts, each with its line and where its name stands."""
    for document in documents:
        for node in document.walk():
            for name, value in node.entries:
                if name in ENVIRONMENTS:
                    yield from _given_variables(name, value)


def _given_variables(word: str, node: Node) -> Iterator[tuple[str, int, int]]:
    for name, place in node.places.items():
        if CAPITALS.fullmatch(name):
            yield name, *place
    for each in node.items:
        named = each.get("name") if word == "env" else each if word == "environment" else None
        match = CAPITALS.match(named.text) if named is not None else None
        if named is not None and match is not None and named.text[match.end() : match.end() + 1] in {"", "="}:
            yield match[0], named.line, named.begin


def _commands(node: Node) -> Iterator[Command]:
    for name in SCRIPTS:
        if (script := node.get(name)) is not None:
            for part in (script, *script.items):
                yield from _script(part)
    entry, command, more = node.get("entrypoint"), node.get("command"), node.get("args")
    texts = [each for each in (entry, command, more) if each is not None]
    if any(each.entries for each in texts):
        return
    if len(texts) == 1 and not texts[0].items:
        yield from _script(texts[0], is_compose=True)
        return
    words = [word for each in texts for word in _words(each)]
    if words:
        yield from listed(words)


def listed(words: list[Word]) -> Iterator[Command]:
    """Yield a command of these words, or those of the script that a shell is handed in them."""
    if SHELLS.match(words[0].text):
        for place, word in enumerate(words[:-1]):
            if re.fullmatch(r"-\w*c", word.text):
                yield from within(words[place + 1])
                return
    yield Command((), tuple(words), is_certain=True)


def within(word: Word) -> Iterator[Command]:
    """Yield the commands of a script that is one word; all its words stand where it does."""
    try:
        read = read_shell(word.text, word.line).commands
    except ShellError:
        return

    def placed(each: Word) -> Word:
        return replace(each, begin=word.begin, end=word.end)

    for each in read:
        assigned = tuple((name, placed(value)) for name, value in each.assigned)
        yield replace(each, assigned=assigned, words=tuple(map(placed, each.words)))


def _words(node: Node) -> list[Word]:
    """Return the words of a list, or of a text that is split as a shell does it."""
    if node.items:
        return [Word(each.text, each.line, each.begin, each.begin, *_read(each.text)) for each in node.items]
    return [word for each in _script(node, is_compose=True) for word in each.words]


def _read(text: str) -> tuple[tuple[str, ...], bool]:
    names = tuple(next(filter(None, each)) for each in VARIABLE.findall(text))
    return names, bool(names) or "{{" in text


def _script(node: Node, *, is_compose: bool = False) -> Iterator[Command]:
    text = node.text.replace("$$", "$ ".strip()) if is_compose and not node.style.startswith("|") else node.text
    if node.style == ">":
        text = re.sub(r"\n\s*", " ", text)
    if not text.strip() or "{{" in text:
        return
    word = Word(text, node.line, node.begin, node.begin)
    if node.style != "|":
        yield from within(word)
        return
    try:
        read = read_shell(text, node.line).commands
    except ShellError:
        return
    for each in read:
        yield each.moved(node.begin)


def _environment(node: Node) -> dict[str, Word]:
    """Return the variables that a container or a step is given, as texts."""
    found: dict[str, Word] = {}
    for name in ENVIRONMENTS:
        held = node.get(name)
        if held is None:
            continue
        pairs = list(held.entries)
        for each in held.items:
            key, value = each.get("name"), each.get("value")
            if key is not None and value is not None:
                pairs.append((key.text, value))
            elif "=" in each.text:
                begin, _, end = each.text.partition("=")
                pairs.append((begin, replace(each, text=end)))
        for variable, text in pairs:
            found[variable] = Word(text.text, text.line, text.begin, text.begin, is_open=text.is_open)
    return found


def _given(command: Command, environment: dict[str, Word]) -> Command:
    """Put the values of variables in their places, and the variables before the command."""
    if not environment:
        return command

    def put(word: Word) -> Word:
        names = {*NAME.findall(word.text)} & environment.keys()
        known = {name for name in names if not environment[name].is_open}
        if "$" not in word.text or not known:
            return word

        def value(match: re.Match[str]) -> str:
            name = next(filter(None, match.groups()))
            return environment[name].text if name in known else match[0]

        text = VARIABLE.sub(value, word.text)
        return replace(word, text=text, is_open="$" in text or "`" in text)

    own = {name for name, _ in command.assigned}
    given = tuple((name, value) for name, value in environment.items() if name not in own)
    return replace(command, assigned=(*given, *command.assigned), words=tuple(map(put, command.words)))
