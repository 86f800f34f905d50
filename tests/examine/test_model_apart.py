"""What the ranks build apart though DDP does not tell: tensors beside the model's, and the order of its parameters."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.examine.model.exam import ModelExam, examine_model
from ddpdoctor.examine.target import Target
from ddpdoctor.facets import Instrument
from ddpdoctor.findings import Finding, Severity

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import torch
import torch.distributed as dist
from torch import nn

"""
HELD = """
class Codes:
    def __init__(self, generator=None):
        self.proj = torch.randn(8, 4, generator=generator)

    def __call__(self, x):
        return (x @ self.proj).argmax(1)

class Net(nn.Module):
    def __init__(self, codes):
        super().__init__()
        self.codes, self.head = codes, nn.Linear(8, 4)

    def forward(self, x):
        return nn.functional.cross_entropy(self.head(x), self.codes(x))

def build_model():
    return Net(Codes({given}))
"""
PLAIN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)
        self.proj = {made}
        {more}

    def forward(self, x):
        return nn.functional.cross_entropy(self.head(x), {used})

    def sample(self):
        return self.head(self.proj)

def build_model(rank):
    return Net()
"""
LABELS = "(x @ self.proj).argmax(1)"
NAMES = """
KINDS = ["country", "device", "browser", "campaign", "hour", "slot"]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        kinds = set(KINDS) - {{"slot"}}
        self.tables = nn.ModuleDict()
        for kind in {order}:
            self.tables[kind] = nn.Embedding(5, 4)

    def forward(self, x):
        return sum(table(x).sum() for table in self.tables.values())

def build_model():
    return Net()
"""


def examined(jobs: Jobs, folder: Path, text: str) -> ModelExam:
    """Examine the model that a script builds."""
    path = folder / "train.py"
    path.write_text(HEAD + dedent(text))
    return examine_model(jobs, Target(str(path), "build_model"), None)


def findings(slug: str, exam: ModelExam) -> list[Finding]:
    """Return what one check says."""
    check = next(check for check in CHECKS if check.slug == slug)
    return [finding for facet in check.of(Instrument.PROBE) for finding in facet.examine(exam)]


@pytest.mark.parametrize("seeds", [False, True])
def test_a_random_tensor_beside_the_model_is_found(seeds: bool, jobs: Jobs, tmp_path: Path) -> None:  # noqa: FBT001
    """It is told with the way that rank 0's comes to all; as a note where a file beside the model's seeds."""
    if seeds:
        (tmp_path / "main.py").write_text("torch.manual_seed(0)\n")
    (found,) = findings("statistics-of-one-rank", examined(jobs, tmp_path, HELD.format(given="")))

    assert "codes.proj" in found.message
    assert found.severity is (Severity.NOTE if seeds else Severity.WARNING)
    assert found.ambiguity is not None
    assert found.fix.diff.startswith("+dist.broadcast(model.codes.proj, src=0)\n")


def test_an_attribute_of_a_module_becomes_a_buffer(jobs: Jobs, tmp_path: Path) -> None:
    """The line that makes it is given as it would be."""
    text = PLAIN.format(made="torch.randn(8, 4)", more="pass", used=LABELS)
    (found,) = findings("statistics-of-one-rank", examined(jobs, tmp_path, text))

    assert found.fix.diff == (
        '-        self.proj = torch.randn(8, 4)\n+        self.register_buffer("proj", torch.randn(8, 4))'
    )


def test_what_no_seed_makes_alike_is_said_to_be(jobs: Jobs, tmp_path: Path) -> None:
    """A tensor that depends on the rank itself is the ranks' own, however they are seeded."""
    text = PLAIN.format(made="torch.full((8, 4), 1.0 + dist.get_rank())", more="pass", used=LABELS)
    (found,) = findings("statistics-of-one-rank", examined(jobs, tmp_path, text))

    assert (found.severity, found.ambiguity) == (Severity.WARNING, None)


HEALTHY = {
    "drawn from a generator of its own": HELD.format(given="torch.Generator().manual_seed(0)"),
    "a buffer": PLAIN.format(made="None", more='self.register_buffer("codes", torch.randn(8, 4))',
                             used="(x @ self.codes).argmax(1)"),
    "noise that samples do not meet": PLAIN.format(made="torch.randn(3, 8)", more="pass", used="x.argmax(1) % 4"),
    "given by rank 0 in the class": PLAIN.format(
        made="torch.randn(8, 4)", more="dist.broadcast(self.proj, src=0)", used=LABELS
    ),
    "constants": PLAIN.format(made="torch.arange(32.0).view(8, 4)", more="pass", used=LABELS),
}  # fmt: skip


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_said_of_what_is_the_same_or_meets_no_sample(text: str, jobs: Jobs, tmp_path: Path) -> None:
    """A healthy model that holds such a tensor is left alone."""
    assert findings("statistics-of-one-rank", examined(jobs, tmp_path, text)) == []


def test_an_order_that_the_hash_seed_decides_is_found(jobs: Jobs, tmp_path: Path) -> None:
    """The ranks of a training have hash seeds of their own; the line that goes through the set is given sorted."""
    (found,) = findings("parameters-differ", examined(jobs, tmp_path, NAMES.format(order="kinds")))

    assert "hash seed" in found.message
    assert found.fix.diff == "-        for kind in kinds:\n+        for kind in sorted(kinds):"


def test_an_order_that_is_sorted_is_left_alone(jobs: Jobs, tmp_path: Path) -> None:
    """Sets alone are no fault."""
    assert findings("parameters-differ", examined(jobs, tmp_path, NAMES.format(order="sorted(kinds)"))) == []
