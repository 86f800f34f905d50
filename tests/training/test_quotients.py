"""What a line reduces, and whether it is a quotient of counts that one of the script's own methods computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ddpdoctor.check import Site
from ddpdoctor.checks.data.evaluation._ratios import quotient

if TYPE_CHECKING:
    from helpers import Script

METER = """
class Meter:
    def per_class(self):
        inter = self.confusion.diag()
        union = self.confusion.sum(0) + self.confusion.sum(1) - inter
        return inter / union.clamp(min=1)
    def means(self):
        return self.sums / self.samples
def reduce_mean(t):
    t = t.clone()
    dist.all_reduce(t)  # here
    return t / dist.get_world_size()
def validate(meter):
    return reduce_mean(meter.{method}())
"""
PLAIN = """
def validate(meter):
    score = meter.{method}()
    dist.all_reduce(score, op=dist.ReduceOp.AVG)  # here
    return score
"""


@pytest.mark.parametrize("text", [METER, METER.partition("def reduce_mean")[0] + PLAIN], ids=["by a helper", "here"])
@pytest.mark.parametrize(("method", "expected"), [("per_class", "per_class"), ("means", ""), ("unknown", "")])
def test_a_quotient_of_what_is_kept_in_one_place_is_one(text: str, method: str, expected: str, script: Script) -> None:
    """Sums over a number of samples are means, and those of equal shares may be averaged."""
    path = script(text.format(method=method))
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)

    assert quotient(Site(path, line, "")) == expected
