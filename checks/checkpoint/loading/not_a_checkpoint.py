"""The file is no checkpoint: a web page, a git-lfs pointer, an empty file.

## What happens

torch.load says "invalid load key, 'v'." for a git-lfs pointer, "invalid load key, '<'." for an HTML page, and
"EOFError: Ran out of input" for an empty file; other files give other letters.

Usual causes: `git clone` without git-lfs leaves the pointer; a download link answered with a page (a login, a quota,
a file viewer instead of the raw file); the disk was full when the file was created; the name is that of another file.

## How to be sure

`ddpdoctor inspect last.pt` says what the file is. `head -c 200 last.pt` shows its first bytes: a git-lfs pointer
begins with "version https://git-lfs", a page with "<".

## How to mend it

Fetch the real file: `git lfs install && git lfs pull` for a pointer, the raw link of the file for a page,
`huggingface-cli download` for a file of the Hugging Face hub. A plain pickle that torch.save did not write is read by
`pickle.load`, which runs what it says; write it with torch.save.

## Versions and sources

Holds for all versions of torch; seen with torch 2.13 CPU. Source: git-lfs specification, "The Pointer".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpdoctor.check import (
    Ailment,
    CheckpointFile,
    Evidence,
    Finding,
    Fix,
    Format,
    Place,
    Record,
    Severity,
    log_pattern,
    probe,
    shell_quote,
)

AILMENT = Ailment("DDP808", Severity.ERROR)


@probe
def in_the_file(checkpoint: CheckpointFile) -> Iterator[Finding]:
    """Report a file of another kind."""
    if not checkpoint.format.loads:
        yield Finding(
            f"{checkpoint.path} is no checkpoint of torch: it is {_article(checkpoint)}",
            (
                Evidence(
                    f"{checkpoint.size} bytes{': ' if checkpoint.label else ''}{checkpoint.label}",
                    "a file of torch.save or safetensors",
                    checkpoint.path,
                ),
            ),
            _fix(checkpoint),
            place=Place(file=checkpoint.path),
        )


def _article(checkpoint: CheckpointFile) -> str:
    kind = checkpoint.format.value
    return f"{'an' if kind[0] in 'aeioHu' else 'a'} {kind}"


def _fix(checkpoint: CheckpointFile) -> Fix:
    path = Path(checkpoint.path)
    match checkpoint.format:
        case Format.LFS:
            folder, name = shell_quote(str(path.parent)), shell_quote(path.name)
            command = f"git -C {folder} lfs install && git -C {folder} lfs pull --include {name}"
            return Fix("let git-lfs fetch the file", command)
        case Format.HTML:
            return Fix("download the file itself: the link led to a page", f"head -c 400 {shell_quote(str(path))}")
        case Format.PICKLE:
            return Fix("write it with torch.save; a plain pickle is read by pickle.load, which runs what it says")
        case _:
            return Fix("name the file that torch.save wrote, or fetch it again", f"ls -l {shell_quote(str(path))}")


@log_pattern(
    r"invalid load key, '([v<])'\.|Unsupported operand (118|60)\b"
    r"|Error while deserializing header: (?:HeaderTooLarge|header too large)"
)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise the first letter of a git-lfs pointer or of a web page, read as a pickle or as a header's length."""
    page = match[1] == "<" or match[2] == str(ord("<"))
    kind = "an HTML page" if page else "a git-lfs pointer, the text that stands for a large file"
    yield _finding(record, match, kind)


@log_pattern(r"EOFError: Ran out of input")
def empty_in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Recognise an empty file by torch.load in the traceback; other pickles run out, too."""
    if re.search(r"torch[/\\]serialization\.py", record.text):
        yield _finding(record, match, "an empty file")


def _finding(record: Record, match: re.Match[str], kind: str) -> Finding:
    return Finding(
        f"the file is no checkpoint but {kind}",
        (record.proof(match, "a checkpoint"),),
        Fix(
            "fetch the file itself: git lfs pull, or the raw link",
            command="head -c 200 last.pt\ngit lfs install && git lfs pull",
        ),
        record.place,
    )
