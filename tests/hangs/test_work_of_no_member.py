"""What a rank that is no member of a group gets of a collective is None, and it fails where it waits for it."""

from __future__ import annotations

import pytest
from helpers import CHECKS

from ddpdoctor.watch.dispatcher import Dispatcher
from ddpdoctor.watch.events import Failed, Joined, PassedOver, Site

CALL, WAITS = Site("train.py", 14, "reduce"), Site("train.py", 23, "main")


@pytest.mark.parametrize(
    ("passed", "attribute", "told"),
    [
        pytest.param(True, "wait", True, id="passed over"),
        pytest.param(False, "wait", False, id="a member"),
        pytest.param(True, "shape", False, id="another attribute"),
    ],
)
def test_a_rank_that_waits_for_no_work(*, passed: bool, attribute: str, told: bool) -> None:
    """Only where torch has passed over a call of this rank is it known what was None."""
    judge = Dispatcher(CHECKS)
    list(judge.see(Joined(pid=3, time=1.0, rank=2, world_size=4, backend="gloo")))
    if passed:
        list(judge.see(PassedOver(pid=3, time=2.0, rank=2, site=CALL, operation="all_reduce")))
    text = f"Traceback (most recent call last):\nAttributeError: 'NoneType' object has no attribute '{attribute}'"

    found = judge.see(Failed(pid=3, time=3.0, rank=2, error="AttributeError", text=text, site=WAITS))

    assert ("work-of-no-member" in [each.check.slug for each in found]) is told
