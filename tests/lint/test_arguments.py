"""What a call passes, by the names of the parameters of the function that it calls."""

from __future__ import annotations

import ast

from ddpdoctor.source.arguments import by_parameter


def passed(definition: str, call: str) -> dict[str, str]:
    """Return what a call passes, as it is written."""
    function = ast.parse(definition).body[0]
    site = ast.parse(call, mode="eval").body
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(site, ast.Call)
    return {name: ast.unparse(value) for name, value in by_parameter(function, site).items()}


def test_object_of_a_method_is_no_parameter() -> None:
    """A method's first parameter is the object before the dot: the first argument is the one behind it."""
    found = passed("def run(self, loader, epochs): ...", "trainer.run(val, epochs=3)")
    assert found == {"loader": "val", "epochs": "3"}


def test_function_is_passed_from_its_first_parameter_on() -> None:
    """A plain function has no object: its first argument is its first parameter."""
    assert passed("def run(loader, epochs): ...", "run(val, 3)") == {"loader": "val", "epochs": "3"}
