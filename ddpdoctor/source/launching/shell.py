"""A shell script as its simple commands: words without their quotes, each with its line, and what they read.

No shell is run and nothing is expanded. A script that this reader does not follow to its end (``ShellError``) is one of
which nothing is known: shells accept more than is read here.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpdoctor.source.launching.shell_words import DOCUMENTS, Lexer, ShellError, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
REDIRECTIONS = {"&>>", "&>", ">&", "<&", "<<<", ">>", "<>", ">|", "<", ">"}
HEADED = {"for", "select", "case"}
"""Their words up to the end of the line are no command."""
OPENERS = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac", "{": "}"}
BETWEEN = {"then", "else", "elif", "do", "!", "time", "coproc"}


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. ``is_certain``: each run of the script comes to it, in the script's own process."""

    assigned: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    is_certain: bool
    in_background: bool = False
    in_loop: bool = False

    @property
    def line(self) -> int:
        """The line on which it begins."""
        return self.words[0].line if self.words else self.assigned[0][1].line

    def moved(self, begin: int) -> Command:
        """Return it as a part of a text in which the shell's begins there."""

        def word_moved(word: Word) -> Word:
            return replace(word, begin=word.begin + begin, end=word.end + begin)

        assigned = tuple((name, word_moved(word)) for name, word in self.assigned)
        return replace(self, assigned=assigned, words=tuple(map(word_moved, self.words)))


@dataclass(frozen=True, slots=True)
class Shell:
    """What a script has: its commands, and its comments with their lines.

    ``documents`` are the bodies of its here-documents with their first lines, ``arrays`` the values of arrays by name,
    and whether each run of the script comes to them.
    """

    commands: tuple[Command, ...]
    comments: tuple[tuple[int, str], ...]
    documents: tuple[tuple[int, str], ...] = ()
    arrays: tuple[tuple[str, tuple[Word, ...], bool], ...] = ()


def read_shell(text: str, first_line: int = 1) -> Shell:
    """Read a script.

    Raises:
        ShellError: it is not understood.
    """
    lexer = Lexer(text, first_line)
    try:
        commands = tuple(_commands(lexer))
    except RecursionError:
        raise ShellError("nested too deeply") from None
    return Shell(commands, tuple(lexer.comments), tuple(lexer.documents), tuple(lexer.arrays))


def _commands(lexer: Lexer) -> Iterator[Command]:  # noqa: C901, PLR0912 - one case a token
    """Yield the commands; ``open_`` holds what closes each construct that is open."""
    open_: list[str] = []
    words: list[Word] = []
    after = "\n"
    target = ""
    for part in itertools.chain(lexer.tokens(), ("\n",)):
        if isinstance(part, Word):
            if target in DOCUMENTS:
                lexer.here.append((part.text, target == "<<-"))
            elif words and words[0].text == "function" and part.text == "{":
                open_.append("}")
                words = []
            elif not target and (words or not _is_keyword(part, open_)):
                words.append(part)
            target = ""
        elif part in REDIRECTIONS | DOCUMENTS:
            target = part
            if words and words[-1].text.isdigit() and words[-1].end == lexer.at - len(part):
                words.pop()  # the number of a stream
        elif part == "(":
            words = _opened(words, open_, lexer.at)
        elif part == ")":
            if words and open_[-1:] == ["("]:
                yield _command(words, open_, after, "\n")
            if open_[-1:] == [ARRAY] and words:
                lexer.arrays.append((words[0].text[:-1], tuple(words[1:]), len(open_) == 1))
            words = _closed(words, open_, lexer.line)
        elif open_[-1:] != [ARRAY]:
            if words and words[0].text not in HEADED:
                yield _command(words, open_, after, part)
            words, target, after = [], "", part
    if open_:
        raise ShellError(f"line {lexer.line}: {open_[-1]} is missing")


ARRAY = ")="


def _opened(words: list[Word], open_: list[str], at: int) -> list[Word]:
    """Keep what a parenthesis opens: the value of an array, the end of a function's name, or other commands."""
    is_array = bool(words) and words[-1].text.endswith("=") and words[-1].end == at - 1
    open_.append(ARRAY if is_array else "(")
    return [replace(words[-1], is_open=True)] if is_array else []


def _closed(words: list[Word], open_: list[str], line: int) -> list[Word]:
    if open_[-1:] == ["esac"]:
        return []  # a pattern of case
    if not open_ or open_[-1] not in {"(", ARRAY}:
        raise ShellError(f"line {line}: a ) that nothing opens")
    return words[:1] if open_.pop() == ARRAY else []


def _is_keyword(word: Word, open_: list[str]) -> bool:
    """Whether a word where a command begins is the shell's own; what it opens and closes is kept."""
    if word.end - word.begin != len(word.text):
        return False  # quoted
    if word.text in OPENERS:
        open_.append(OPENERS[word.text])
        return word.text not in HEADED
    if open_ and word.text == open_[-1]:
        open_.pop()
        return True
    return word.text in BETWEEN


def _command(words: list[Word], open_: list[str], after: str, ends: str) -> Command:
    assigned = []
    while words and (match := ASSIGNMENT.match(words[0].text)) and not words[0].text.startswith("$"):
        assigned.append((match[1], replace(words[0], text=words[0].text[match.end() :])))
        words = words[1:]
    is_certain = not open_ and after not in {"&&", "||", "|"} and ends != "|"
    return Command(tuple(assigned), tuple(words), is_certain, ends == "&", in_loop="done" in open_)
