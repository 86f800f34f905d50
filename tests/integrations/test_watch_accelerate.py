"""What users of Accelerate get wrong, with the real package on two ranks: told first, with the line and its own fix."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from frameworks import ACCELERATE, ACCUMULATED, LOOP, hang_after
from helpers import Command, Run, Script

pytestmark = pytest.mark.skipif(find_spec("accelerate") is None, reason="needs accelerate")
EVERY_4 = ("Accelerator(cpu=True)", "Accelerator(cpu=True, gradient_accumulation_steps=4)")
PREPARE = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
REPORT = "        report(accelerator, loss)\n"
AND_ENTERED = (LOOP, ACCUMULATED)

Edits = tuple[tuple[str, str], ...]
UPDATE = """def update(average, model):
    with torch.no_grad():
        for one, other in zip(average.parameters(), model.parameters(), strict=True):
            one.lerp_(other, 0.2)

def main():
"""
EVALUATED = (
    REPORT
    + """        model.eval()
        for inputs, _ in held:
            with torch.no_grad():
                hits, own = average(inputs).argmax(1), model(inputs).argmax(1)
            accelerator.gather_for_metrics((hits, own))
        model.train()
"""
)
AVERAGED = (
    ("import torch\n", "import copy\nimport torch\n"),
    ("def main():\n", UPDATE),
    ("    optimizer = ", "    average = copy.deepcopy(model).requires_grad_(False)\n    optimizer = "),
    (PREPARE, f"held = DataLoader(data(32), batch_size=4)\n    held = accelerator.prepare(held)\n    {PREPARE}"),
    (
        "            optimizer.step()\n",
        "            optimizer.step()\n            update(average, accelerator.unwrap_model(model))\n",
    ),
    (REPORT, EVALUATED),
)
"""A model whose weights are averaged over the steps, and evaluated beside it."""
PREDICTED = (
    ("    loader = Data", "    unseen = accelerator.prepare(DataLoader(data(32), batch_size=4))\n    loader = Data"),
    (
        "    accelerator.wait",
        """    model.eval()
    rows = []
    with torch.no_grad():
        for inputs, _ in unseen:
            predicted = model(inputs).argmax(1)
            rows.extend(predicted.tolist())
    if accelerator.is_main_process:
        torch.save(rows, "predictions.pt")
    accelerator.wait""",
    ),
)
BROKEN: dict[str, tuple[str, str, Edits]] = {
    "the gather is in a function that one rank calls": (
        "rank0-only-collective",
        "+report(accelerator, loss)",
        (
            (REPORT, "        if accelerator.is_main_process:\n            report(accelerator, loss)\n"),
            ('print("loss", accelerator', 'print("loss", accelerator'),
        ),
    ),
    "the function is decorated": (
        "rank0-only-collective",
        "accelerator.gather(...)",
        (("def report", "PartialState(cpu=True)\n\n@PartialState().on_main_process\ndef report"),),
    ),
    "all wait, under a test": (
        "rank0-only-collective",
        "+accelerator.wait_for_everyone(...)",
        ((REPORT, "        if accelerator.is_local_main_process:\n            accelerator.wait_for_everyone()\n"),),
    ),
    "the loader is not prepared": (
        "no-distributed-sampler",
        "+loader = accelerator.prepare(loader)",
        ((PREPARE, "model, optimizer = accelerator.prepare(model, optimizer)"),),
    ),
    "the model is not prepared": (
        "gradients-not-exchanged",
        "+model, optimizer = accelerator.prepare(model, optimizer)",
        ((PREPARE, "optimizer, loader = accelerator.prepare(optimizer, loader)"), (REPORT, "")),
    ),
    "the optimizer is not prepared": (
        "optimizer-not-prepared",
        "+optimizer = accelerator.prepare(optimizer)",
        (EVERY_4, AND_ENTERED, (PREPARE, "model, loader = accelerator.prepare(model, loader)")),
    ),
    "nobody has said that it is the CPU": (
        "process-group-never-joined",
        "+accelerator = Accelerator(cpu=True)",
        ((EVERY_4[0], "Accelerator()"),),
    ),
    "accumulate is not entered": ("accumulation-not-entered", "+    with accelerator.accumulate(model):", (EVERY_4,)),
    "gradients are cleared with each micro-batch": (
        "gradients-cleared-between-micro-batches",
        " with accelerator.accumulate(model):",
        (
            EVERY_4,
            AND_ENTERED,
            ("                loss = criterion", "                model.zero_grad()\n                loss = criterion"),
            ("                optimizer.zero_grad()\n", ""),
        ),
    ),
    "backward of the loss": (
        "framework-backward-bypassed",
        "+accelerator.backward(loss)",
        (EVERY_4, AND_ENTERED, ("accelerator.backward(loss)", "loss.backward()")),
    ),
    "a sampler besides": (
        "sharded-twice",
        "+loader = DataLoader(dataset, shuffle=True)",
        (
            ("data(64), batch_size=4, shuffle=True", "part, batch_size=4, sampler=DistributedSampler(part)"),
            ("    loader = ", "    part = data(64)\n    loader = "),
        ),
    ),
    "the average is updated by the main process alone": (
        "evaluated-copy-differs",
        "+update(average, model.module)",
        (*AVERAGED, ("            update(", "            accelerator.is_main_process and update(")),
    ),
    "the main process writes what it has predicted": (
        "predictions-of-one-rank",
        "+rows.extend(accelerator.gather_for_metrics(predicted).tolist())",
        PREDICTED,
    ),
    "FSDP on the CPU": (
        "sharding-request-ignored",
        "",
        (("Accelerator(cpu=True)", "Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin())"),),
    ),
}
HEALTHY: dict[str, Edits] = {
    "as it is": (),
    "accumulated": (EVERY_4, AND_ENTERED),
    "accumulated, and the step is outside": (
        EVERY_4,
        AND_ENTERED,
        ("    optimizer.step()\n", "    pass\n"),
        (
            "                optimizer.zero_grad()\n",
            "            optimizer.step()\n            optimizer.zero_grad()\n",
        ),
    ),
    "divided and accumulated by hand": (
        EVERY_4,
        AND_ENTERED,
        ("accelerator.backward(loss)", "(loss / accelerator.gradient_accumulation_steps).backward()"),
    ),
    "backward of the loss, where Accelerate does no more": (("accelerator.backward(loss)", "loss.backward()"),),
    "an average of the weights is evaluated": AVERAGED,
    "the main process writes what all have predicted": (
        *PREDICTED,
        ("rows.extend(predicted", "rows.extend(accelerator.gather_for_metrics(predicted)"),
    ),
    "printed by one rank": ((REPORT, '        accelerator.print("loss", accelerator.gather(loss.detach()).mean())\n'),),
}
ALSO_BY_DAY = {"the gather is in a function that one rank calls"}

Watched = Callable[[str, Edits], tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]]


def edited(text: str, edits: Edits) -> str:
    """Return a script with some of its parts replaced."""
    for before, after in edits:
        assert before in text, before
        text = text.replace(before, after)
    return text


@pytest.fixture
def watched(ddpdoctor: Run, script: Script, torchrun: Command, tmp_path: Path) -> Watched:
    """Return what runs a script on two ranks under the watch, and returns what was found, the first of it first."""

    def run(text: str, edits: Edits) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        report, file = tmp_path / "report.json", script(edited(text, edits))
        options = (*hang_after(5), "--on-finding", "raise", "--report", str(report))
        done = ddpdoctor("run", *options, "--", *torchrun, file, cwd=tmp_path)
        return done, json.loads(report.read_text())["results"]

    return run


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALSO_BY_DAY else pytest.mark.nightly) for name in BROKEN]
)
def test_a_mistake_is_told_first_in_accelerates_words(watched: Watched, name: str) -> None:
    """The check, the user's file, and the lines to paste."""
    slug, fix, edits = BROKEN[name]
    done, results = watched(ACCELERATE, edits)

    assert results, done.stdout + done.stderr
    [finding, *_] = results[0]["findings"]
    assert (results[0]["slug"], done.returncode) == (slug, 1), done.stderr
    assert fix in (finding["fix"].get("diff") or "")
    assert finding["place"]["file"].endswith("train.py")


@pytest.mark.nightly
@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("name", HEALTHY)
def test_of_a_healthy_training_nothing_is_said(watched: Watched, name: str) -> None:
    """Also where it only looks like a mistake."""
    done, results = watched(ACCELERATE, HEALTHY[name])

    assert (done.returncode, results) == (0, []), done.stderr
