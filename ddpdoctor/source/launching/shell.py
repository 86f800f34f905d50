"""A shell script as its simple commands: words without their quotes, each with its line, and what they read.

No shell is run and nothing is expanded. A script that this reader does not follow to its end (``ShellError``) is one of
which nothing is known: shells accept more than is read here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|&>>|&>|>&|<&|<<<|<<-|<<|>>|<>|>\||[;&|()<>]")
REDIRECTIONS = {"&>>", "&>", ">&", "<&", "<<<", ">>", "<>", ">|", "<", ">"}
DOCUMENTS = {"<<", "<<-"}
HEADED = {"for", "select", "case"}
"""Their words up to the end of the line are no command."""
OPENERS = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "case": "esac", "{": "}"}
BETWEEN = {"then", "else", "elif", "do", "!", "time", "coproc"}
DEEPEST = 50  # substitutions in each other


class ShellError(ValueError):
    """The text is no shell script that can be read to its end."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the program gets it, but for what the shell puts in: ``reads`` are the variables that it reads there.

    ``begin`` and ``end`` are its place in the text. ``is_open``: it holds something that only the shell knows.
    """

    text: str
    line: int
    begin: int
    end: int
    reads: tuple[str, ...] = ()
    is_open: bool = False


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


@dataclass(frozen=True, slots=True)
class Shell:
    """What a script has: its commands, and its comments with their lines."""

    commands: tuple[Command, ...]
    comments: tuple[tuple[int, str], ...]


@dataclass
class _Lexer:
    text: str
    first_line: int = 1
    at: int = 0
    line: int = 1
    comments: list[tuple[int, str]] = field(default_factory=list)
    here: list[tuple[str, bool]] = field(default_factory=list)

    def tokens(self) -> Iterator[Word | str]:
        """Yield words, and operators as plain text; a new line is one of them."""
        self.line = self.first_line
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\n":
                yield "\n"
                self._step(1)
                self._skip_documents()
            elif char in " \t\r":
                self._step(1)
            elif self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self._step(2 if self.text[self.at + 1] == "\n" else 3)
            elif char == "#":
                end = self._end_of_line()
                self.comments.append((self.line, self.text[self.at : end]))
                self._step(end - self.at)
            elif (match := OPERATOR.match(self.text, self.at)) and not self._is_process():
                self._step(len(match[0]))
                yield match[0]
            else:
                yield self._word()

    def _is_process(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def _step(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _end_of_line(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _skip_documents(self) -> None:
        """Pass over the bodies of here-documents: they are another program's text."""
        while self.here:
            delimiter, strips = self.here.pop(0)
            while self.at < len(self.text):
                end = self._end_of_line()
                line = self.text[self.at : end].rstrip("\r")
                self._step(end + 1 - self.at)
                if (line.lstrip("\t") if strips else line) == delimiter:
                    break

    def _word(self) -> Word:
        begin, line = self.at, self.line
        parts: list[str] = []
        reads: list[str] = []
        is_open = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                skip = self.text[self.at + 1 : self.at + 2]
                parts.append("" if skip == "\n" else skip)
                self._step(2)
            elif char == "'" or self.text.startswith("$'", self.at):
                parts.append(self._quoted("'", 1 if char == "'" else 2))
            elif char == '"' or self.text.startswith('$"', self.at):
                self._step(1 if char == '"' else 2)
                is_open |= self._double(parts, reads)
            elif char in "$`" or self._is_process():
                is_open |= self._expansion(parts, reads)
            elif char in " \t\r\n" or (OPERATOR.match(self.text, self.at)):
                break
            else:
                parts.append(char)
                self._step(1)
        return Word("".join(parts), line, begin, self.at, tuple(reads), is_open)

    def _quoted(self, quote: str, skip: int) -> str:
        self._step(skip)
        end = self.text.find(quote, self.at)
        if end < 0:
            raise ShellError(f"line {self.line}: a quote that nothing closes")
        inner = self.text[self.at : end]
        self._step(end + 1 - self.at)
        return inner

    def _double(self, parts: list[str], reads: list[str]) -> bool:
        is_open = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self._step(1)
                return is_open
            if char == "\\":
                skip = self.text[self.at + 1 : self.at + 2]
                parts.append("" if skip == "\n" else skip if skip in '$`"\\' else f"\\{skip}")
                self._step(2)
            elif char in "$`":
                is_open |= self._expansion(parts, reads)
            else:
                parts.append(char)
                self._step(1)
        raise ShellError(f"line {self.line}: a quote that nothing closes")

    def _expansion(self, parts: list[str], reads: list[str]) -> bool:
        """Read ``$NAME``, ``${...}``, ``$(...)`` or backticks; a dollar alone is itself."""
        begin = self.at
        if self.text[self.at] == "`":
            self._quoted("`", 1)
        elif self.text.startswith("${", self.at):
            self._nested("{", "}", 2)
            reads += NAME.findall(self.text[begin + 2 : self.at])[:1]
        elif self.text[self.at + 1 : self.at + 2] == "(":
            self._nested("(", ")", 2)
        elif match := NAME.match(self.text, self.at + 1):
            self._step(1 + len(match[0]))
            reads.append(match[0])
        elif self.text[self.at + 1 : self.at + 2] in set("0123456789@*#?$!-"):
            self._step(2)
        else:
            parts.append("$")
            self._step(1)
            return False
        parts.append(self.text[begin : self.at])
        return True

    def _nested(self, opens: str, closes: str, skip: int) -> None:
        self._step(skip)
        depth = 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self._step(2)
            elif char == "'" and (opens == "(" or self.text[self.at - 1] != "\\"):
                self._quoted("'", 1)
            elif char == '"':
                self._step(1)
                self._double([], [])
            else:
                depth += (char == opens) - (char == closes)
                self._step(1)
                if depth == 0:
                    return
                if depth > DEEPEST:
                    break
        raise ShellError(f"line {self.line}: a {opens} that nothing closes")


def read_shell(text: str, first_line: int = 1) -> Shell:
    """Read a script.

    Raises:
        ShellError: it is not understood.
    """
    lexer = _Lexer(text, first_line)
    try:
        commands = tuple(_commands(lexer))
    except RecursionError:
        raise ShellError("nested too deeply") from None
    return Shell(commands, tuple(lexer.comments))


def _commands(lexer: _Lexer) -> Iterator[Command]:  # noqa: C901, PLR0912 - one case a token
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
