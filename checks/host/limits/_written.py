"""Which file a program was writing when it failed: by the line of the traceback, or by the source around it."""

from __future__ import annotations

import re
from pathlib import Path

from ddpdoctor.check import Record

LITERAL = r"""\(\s*(?:[rbfRBF]{0,2})["'](?P<path>[^"'{\n]*)"""
SAVES = re.compile(r"(?:\bopen|\.save|\.dump|savez?|to_csv|to_parquet|save_pretrained)" + LITERAL)
SECOND = re.compile(r"""\.(?:save|dump)\([^"'\n]*,\s*(?:[rbfRBF]{0,2})["'](?P<path>[^"'{\n]*)""")
WRITES = re.compile(r"(?P<name>\w+)\.(?:write|writelines|flush|writerow)\(")
ABOVE = 40  # lines, in which a file is opened that is written to below


def written(record: Record) -> str:
    """Return the path, as far as it is spelled out, of the file that the user's line writes; empty where unknown."""
    code = record.code
    for pattern in (SAVES, SECOND):
        if found := pattern.search(code):
            return found["path"]
    frame, writes = record.users, WRITES.search(code)
    if frame is None or writes is None:
        return ""
    try:
        lines = Path(frame.file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    name = re.escape(writes["name"])
    other = LITERAL.replace("<path>", "<other>")
    opens = re.compile(rf"\bopen{LITERAL}[^\n]*\bas {name}\b|\b{name}\s*=\s*open{other}")
    if frame.line > len(lines) or lines[frame.line - 1].strip() != code:
        return ""  # another version of the file
    for line in reversed(lines[max(0, frame.line - ABOVE) : frame.line]):
        if found := opens.search(line):
            return found["path"] or found["other"] or ""
    return ""
