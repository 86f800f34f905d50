"""The words of a script of the shell: quotes taken away, expansions and documents skipped."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|&>>|&>|>&|<&|<<<|<<-|<<|>>|<>|>\||[;&|()<>]")
DOCUMENTS = {"<<", "<<-"}
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


@dataclass
class Lexer:
    """Takes a text apart; ``comments`` are by line, ``here`` the documents that are still to come.

    ``documents`` are the bodies of those that were read, each with its first line.
    """

    text: str
    first_line: int = 1
    at: int = 0
    line: int = 1
    comments: list[tuple[int, str]] = field(default_factory=list)
    here: list[tuple[str, bool]] = field(default_factory=list)
    documents: list[tuple[int, str]] = field(default_factory=list)
    arrays: list[tuple[str, tuple[Word, ...], bool]] = field(default_factory=list)

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
            first, begin = self.line, self.at
            while self.at < len(self.text):
                end = self._end_of_line()
                line = self.text[self.at : end].rstrip("\r")
                if (line.lstrip("\t") if strips else line) == delimiter:
                    self.documents.append((first, self.text[begin : self.at]))
                    self._step(end + 1 - self.at)
                    break
                self._step(end + 1 - self.at)

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
