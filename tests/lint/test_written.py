"""Edits of whole lines, and names that are compared by their letters first: whatever the text, nothing else changes."""

from __future__ import annotations

import ast

from hypothesis import given, strategies as st

from ddpdoctor.host.variables import NEAR, UNMISTAKABLE, edits, meant
from ddpdoctor.lint.edits import applied
from ddpdoctor.source.text.written import Written

STATEMENTS = ["step()  # é", "pass", "x = 1; y = 2", "call(\n        1,\n    )", "'''a\n b'''"]
LINES = st.lists(st.sampled_from(STATEMENTS), min_size=1)
SLIPS = st.lists(
    st.tuples(st.sampled_from(["cut", "put", "swap", "turn"]), st.integers(0, 40), st.sampled_from("A_Z1é")), max_size=3
)


def block(text: str) -> tuple[Written, list[ast.stmt]]:
    """Return a file of one function, and the statements of that."""
    module = ast.parse(text)
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    return Written("train.py", text, module), function.body


def dumped(body: list[ast.stmt]) -> list[str]:
    """Return what each statement is, without its place."""
    return [ast.dump(each) for each in body]


@given(LINES, st.data(), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n"]))
def test_a_statement_is_taken_out_and_no_other(lines: list[str], data: st.DataObject, end: str, last: str) -> None:
    """What is left are the other statements, in their order; where one has no lines for itself, a ``pass`` stands."""
    text = ("\n".join(["def f():", *(f"    {line}" for line in lines)]) + last).replace("\n", end)
    file, body = block(text)
    at = data.draw(st.integers(0, len(body) - 1))

    _, after = block(applied(text, [file.removed(body[at], body)]))

    left = dumped(body[:at] + body[at + 1 :])
    assert dumped(after) in (left, [*left[:at], ast.dump(ast.Pass()), *left[at:]])


@given(LINES, st.data())
def test_a_line_below_a_statement_stands_behind_it(lines: list[str], data: st.DataObject) -> None:
    """It is one more statement of the block, and the others stay as they are."""
    text = "\n".join(["def f():", *(f"    {line}" for line in lines)])
    file, body = block(text)
    at = data.draw(st.integers(0, len(body) - 1))

    _, after = block(applied(text, [file.line_after(body[at], "new()")]))

    codes = [ast.unparse(each) for each in after]
    assert codes.index("new()") > at
    assert dumped([each for each in after if ast.unparse(each) != "new()"]) == dumped(body)


@given(st.sampled_from(UNMISTAKABLE), SLIPS)
def test_letters_leave_out_no_name_that_is_near(known: str, slips: list[tuple[str, int, str]]) -> None:
    """A name that is few enough edits away differs in few enough letters."""
    word = [*known]
    for kind, place, char in slips:
        at = place % max(len(word), 1)
        near = word[at : at + 2]
        changed = {"cut": near[1:], "put": [char, *near], "swap": near[::-1], "turn": [char, *near[1:]]}
        word[at : at + 2] = changed[kind]
    name = "".join(word)

    found = meant(name)

    distances = {each: edits(name, each) for each, _, _ in NEAR}
    assert found is None or found in {name.upper(), name} or distances[found] <= 2
    own = sum(1 << place for place in {ord(char) & 127 for char in name})
    for each, most, letters in NEAR:
        if distances[each] <= most:
            assert max((own & ~letters).bit_count(), (letters & ~own).bit_count()) <= most
