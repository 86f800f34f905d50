"""Shell completion, as ``ddpdoctor completion`` sets it up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import Run


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("explain DDP50", "DDP501"),
        ("explain set-epoch-not", "set-epoch-not-called"),
        ("check --only gpu,unused-param", "gpu,unused-parameters"),
        ("check --skip dat", "data"),
        ("selftest set-epoch-not", "set-epoch-not-called"),
        ("check --che", "--checkpoint"),
        ("ins", "inspect"),
    ],
)
def test_bash_completes_what_the_documents_promise(words: str, offered: str) -> None:
    """In a real bash, with what `ddpdoctor completion bash` prints."""
    script = (
        'eval "$(ddpdoctor completion bash)"; COMP_WORDS=(ddpdoctor $0); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
        '_ddpdoctor_completion ddpdoctor; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script, words],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=60,
        check=False,
    )

    assert offered in done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("shell", "part"), [("zsh", "#compdef ddpdoctor"), ("fish", "complete --no-files --command ddp")]
)
def test_other_shells_get_what_they_read(ddpdoctor: Run, shell: str, part: str) -> None:
    """As click writes it."""
    assert part in ddpdoctor("completion", shell).stdout
