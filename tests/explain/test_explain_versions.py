"""Which torch has a name that the installed one has not, and who asked for it."""

from __future__ import annotations

import importlib

import pytest
from helpers import answered

from ddpdoctor.checks.environment.installed._since import EARLIER, SINCE

ASKED = """\
Traceback (most recent call last):
  File "{file}", line 8, in <module>
    from {module} import {name}
ImportError: cannot import name '{name}' from '{module}' (/v/lib/python3.11/site-packages/torch/__init__.py)
"""
OWN, PACKAGE = "/w/train.py", "/v/lib/python3.11/site-packages/peft/tuners/lora.py"


def fix(file: str, module: str, name: str) -> str:
    """Return what is proposed where this file asks for a name."""
    cause = answered(ASKED.format(file=file, module=module, name=name)).cause
    assert cause is not None
    assert cause.check.slug == "framework-torch-version-skew"
    return f"{cause.finding.fix.summary}; {cause.finding.fix.command}"


def test_the_torch_that_has_the_name_is_named() -> None:
    """And where the name was before, for the user's own file."""
    own, package = (fix(file, "torch.distributed.fsdp", "fully_shard") for file in (OWN, PACKAGE))

    assert "torch.distributed._composable.fsdp" in own
    assert "pip install 'torch>=2.6'" in own
    assert "the peft that was made for this torch" in package


def test_no_package_is_to_be_upgraded_for_the_users_own_import() -> None:
    """Of a name that is in no list: where the installed torch has it, or which torch is installed."""
    own, package = (fix(file, "torch.distributed.fsdp", "shard_it_all") for file in (OWN, PACKAGE))

    assert "pip install --upgrade" not in own
    assert "(def|class) shard_it_all" in own
    assert "pip install --upgrade peft" in package


@pytest.mark.parametrize("name", sorted(SINCE))
def test_torch_has_each_name_from_its_release_on(name: str) -> None:
    """As far as the installed torch tells."""
    torch = importlib.import_module("torch")
    installed = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if installed < tuple(map(int, SINCE[name].split("."))):
        pytest.skip(f"torch {torch.__version__}")
    module, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        assert hasattr(importlib.import_module(module), last)


def test_each_earlier_place_is_of_a_name_that_came_later() -> None:
    """Both tables speak of the same names."""
    assert set(EARLIER) <= set(SINCE)
