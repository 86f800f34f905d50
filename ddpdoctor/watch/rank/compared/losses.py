"""The first loss of a rank that is no finite number: read where that costs no wait, which is on a CPU."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import LossNotFinite
from ddpdoctor.watch.user_frames import user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.process import Process


@dataclass(slots=True)
class Losses:
    """Looks at what each backward begins with, until one is not finite."""

    recorder: Process
    is_over: bool = False

    def look(self, loss: Any) -> None:
        """Look at one loss, and take note of it where it is not finite; some microseconds of a backward."""
        torch = sys.modules["torch"]  # an import statement costs what all of the look does
        if type(loss) is not torch.Tensor or not loss.is_cpu or loss.numel() != 1:
            return
        if torch._C._len_torch_dispatch_stack() or math.isfinite(value := loss.item()):  # noqa: SLF001 - a mode of the user's counts what is called
            return
        self.is_over = True
        steps = self.recorder.writer.counters[event_log.STEPS]
        self.recorder.emit(LossNotFinite, value=str(value), steps=steps, site=user_site())
