"""What is read off the factory's file."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, strategies as st

from ddpdoctor.source.training.sets import has_sets
from ddpdoctor.source.training.wraps.wrapping import Source, read_source, read_tree

HEAD = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
"""


def read(text: str) -> Source:
    """Read a script."""
    return read_tree("train.py", ast.parse(HEAD + dedent(text).strip()))


def attributes(text: str) -> list[str]:
    """Return the attributes that are read from wrapped models."""
    return [read.attribute for read in read(text).reads]


def test_a_read_from_the_wrapper_is_found_with_its_line() -> None:
    """Also inside nested blocks, and for every spelling of the wrapper."""
    source = read(
        """
        def train():
            model = nn.parallel.DistributedDataParallel(build())
            for batch in batches:
                loss = model.loss(batch)
        """
    )

    assert [(read.name, read.attribute, read.wrapper, read.line) for read in source.reads] == [
        ("model", "loss", "DDP", 8)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "model = DDP(m)\nmodel.module.encode(x)\nmodel = model.module\nmodel.encode(x)",
        "model = DDP(m)\nmodel.encode = m.encode\nmodel.encode(x)",
        "model = DDP(m)\nif hasattr(model, 'encode'):\n    model.encode(x)",
        "model = DDP(m)\ntry:\n    model.encode(x)\nexcept AttributeError:\n    pass",
        "if many:\n    model = DDP(m)\nelse:\n    model = m\nmodel.encode(x)",
        "model = MyDDP(m)\nmodel.encode(x)",
        "model = other.DistributedDataParallel(m)\nmodel.encode(x)",
        "model = DDP(m)\ndef later(model):\n    model.encode(x)",
    ],
)
def test_care_and_other_names_are_left_alone(text: str) -> None:
    """Rebinding, own attributes, guards, branches, other classes and other scopes raise no alarm."""
    assert "encode" not in attributes(text)


def test_options_of_ddp_are_read_and_what_is_no_literal_counts_as_on() -> None:
    """A configuration that may switch the search on must not be overruled."""
    source = read("model = DDP(m, find_unused_parameters=args.find, static_graph=False, device_ids=[0])")

    assert dict(source.options) == {"find_unused_parameters": True, "static_graph": False}


@pytest.mark.parametrize(
    ("body", "twice"),
    [
        ("    a = model(x)\n    b = model(y)\n    (a + b).backward()", True),
        ("    loss = f(model(x), model(y))\n    loss.backward()", True),
        ("    model(x).backward()\n    model(y).backward()", False),
        ("    a = model(torch.cat([x, y]))\n    a.backward()", False),
        ("    if odd:\n        a = model(x)\n    else:\n        a = model(y)\n    a.backward()", False),
    ],
)
def test_two_calls_before_backward_are_seen(body: str, twice: bool) -> None:  # noqa: FBT001
    """Within one block, with no backward between them."""
    assert bool(read(f"model = DDP(m)\nfor x, y in loader:\n{body}").twice) is twice


def test_data_parallel_is_seen() -> None:
    """With the line where it is made."""
    assert read("model = nn.DataParallel(m)").data_parallel == 5
    assert read("model = DDP(m)").data_parallel is None


@given(st.text())
def test_any_text_is_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """A file that is no Python says nothing."""
    path = tmp_path_factory.mktemp("source") / "train.py"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    assert read_source(str(path)).file == str(path)


def test_no_file_says_nothing(tmp_path: Path) -> None:
    """A model may come from a prompt or an extension."""
    assert read_source(None) == Source("")
    assert read_source(str(tmp_path / "none.py")).reads == ()


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("KINDS = {'.jpg', '.png'}\ndef load(path):\n    return path.suffix in KINDS\n", False),
        ("names: set[str] = set(given)\nprint(len(names), sorted(names))\n", False),
        ("names = {'a', 'b'}\nlayers = [Layer(each) for each in names]\n", True),
        ("names = {'a', 'b'}\nprint('a' in names)\nbuild(names)\n", True),
        ("layers = ModuleDict({each: Layer() for each in {'a', 'b'}})\n", True),
    ],
)
def test_a_set_that_is_only_asked_what_it_contains_needs_no_other_hash_seed(
    tmp_path: Path, text: str, *, has: bool
) -> None:
    """Where it is gone through, its order can decide that of the parameters, and the model is built again."""
    (tmp_path / "model.py").write_text(text)

    assert has_sets(str(tmp_path / "model.py")) == has
