"""The environment variables that the training's own files read: where the models differ, hosts compare them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ddpdoctor.cluster.host import OWN_TO_A_HOST
from ddpdoctor.redact import can_leave

READ = re.compile(r"""\b(?:environ(?:\.get\(|\[|\.setdefault\()|getenv\()\s*["']([A-Za-z_]\w*)["']""")
RANKS = re.compile(
    r"(?:(?:LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?(?:RANK|WORLD_SIZE)|HOST|HOSTNAME|USER|HOME|PWD|PATH|TMPDIR|LOGNAME"
    r"|(?:SLURM|OMPI|PMI|PMIX|TORCHELASTIC)_\w+)$"
)
"""Those that each rank, or each host, has of its own."""
FILES, LONGEST, MOST = 200, 64, 200
NOT_SET = "not set"


def variables_read(named: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the named files, and those beside them, read by name; with their values here.

    Of a long value, and of one that is a secret by its name or its form, a digest is told.
    """
    names: set[str] = set()
    for folder in dict.fromkeys(Path(name).parent for name in named if Path(name).suffix == ".py"):
        for path in sorted(folder.glob("*.py"))[:FILES]:
            try:
                names |= set(READ.findall(path.read_text(encoding="utf-8", errors="replace")))
            except OSError:
                continue
    told = sorted(each for each in names if not RANKS.match(each) and each not in OWN_TO_A_HOST)[:MOST]
    return {each: _value(each, environ.get(each)) for each in told}


def _value(name: str, value: str | None) -> str:
    if value is None:
        return NOT_SET
    if len(value) > LONGEST or not can_leave(name, value):
        return f"sha256 {hashlib.sha256(value.encode(errors='replace')).hexdigest()[:12]}"
    return value
