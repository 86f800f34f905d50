"""How a group is given more time: the change to the script's own call, as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpdoctor.checks.collectives.timeouts._longer import USUAL, longer
from ddpdoctor.watch.events import Site

GLOO = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
OF_MODULE = """
import datetime
from torch.distributed import init_process_group
init_process_group("nccl", timeout=datetime.timedelta(seconds=12), rank=0)
"""
MADE_LONGER = """
-init_process_group('nccl', timeout=datetime.timedelta(seconds=12), rank=0)   # train.py:4
+init_process_group('nccl', rank=0, timeout=datetime.timedelta(hours=3))
"""
RENAMED = "from datetime import timedelta as span\nfrom torch import distributed\ndistributed.init_process_group()\n"
BY_ITS_NAME = """
-distributed.init_process_group()   # train.py:3
+distributed.init_process_group(timeout=span(hours=3))
"""
IMPORTED = """
+from datetime import timedelta
-dist.init_process_group('gloo')   # train.py:2
+dist.init_process_group('gloo', timeout=timedelta(hours=3))
"""
CASES = {
    "none is given": (GLOO, IMPORTED),
    "one is given, by the module's name": (OF_MODULE, MADE_LONGER),
    "timedelta is there by another name": (RENAMED, BY_ITS_NAME),
    "there are two": (f"{GLOO}{GLOO}", USUAL),
    "what it is given stands elsewhere": (GLOO.replace("'gloo'", "**options"), USUAL),
    "another library calls it": ("from accelerate import Accelerator\nAccelerator()\n", USUAL),
}


@pytest.mark.parametrize(("text", "wanted"), [pytest.param(*each, id=name) for name, each in CASES.items()])
def test_the_scripts_own_call_is_changed(tmp_path: Path, text: str, wanted: str) -> None:
    """Where there is exactly one, in the files that the ranks are in."""
    (path := tmp_path / "train.py").write_text(text)

    assert longer([None, Site(str(path), 1, "<module>"), Site(str(path), 2, "main")]) == wanted.strip()
