"""Trainings of Ignite, as their users write them: run by night, with the package itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frameworks import faults, hang_after, results_in
from helpers import COLD_TORCHRUN, PATIENCE, Command, Run, Script

pytestmark = pytest.mark.nightly
pytest.importorskip("ignite", reason="needs pytorch-ignite, of the extra 'frameworks'")

TRAINING = """
import os, sys
import torch
import ignite.distributed as idist
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy
from torch.utils.data import DataLoader, TensorDataset

mode = sys.argv[1]

def training(local_rank):
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(512.0).reshape(64, 8) / 512, torch.arange(64) % 2)
    if "REPORT" in os.environ:
        from ddpdoctor.callbacks.ignite import Watch
        watch = Watch(report=os.environ["REPORT"])
    if mode == "plain loader":
        loader = DataLoader(data, batch_size=4, shuffle=True)
    else:
        loader = idist.auto_dataloader(data, batch_size=8, shuffle=True)
    model = torch.nn.Linear(8, 2)
    if mode != "plain model":
        model = idist.auto_model(model)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    criterion = torch.nn.CrossEntropyLoss()

    def step(engine, batch):
        model.train()
        loss = criterion(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def evaluate(engine, batch):
        model.eval()
        with torch.no_grad():
            return model(batch[0]), batch[1]

    trainer, evaluator = Engine(step), Engine(evaluate)
    if "REPORT" in os.environ:
        watch.attach(trainer)
    Accuracy().attach(evaluator, "accuracy")
    validation = idist.auto_dataloader(data, batch_size=8, shuffle=False)

    @trainer.on(Events.EPOCH_STARTED)
    def tell_epoch(engine):
        if mode not in ("plain loader", "no epoch"):
            loader.sampler.set_epoch(engine.state.epoch - 1)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        evaluator.run(validation)

    if mode == "evaluates on one rank" and idist.get_rank() == 0:

        @trainer.on(Events.EPOCH_COMPLETED)
        def report(engine):
            evaluator.run(validation)

    if mode == "stops by its own score":
        score = lambda engine: idist.get_rank() * engine.state.epoch
        trainer.add_event_handler(Events.EPOCH_COMPLETED, EarlyStopping(1, score, trainer))

    trainer.run(loader, max_epochs=4)

if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)
"""
Watched = Callable[..., list[Any]]


@pytest.fixture
def watched(torchrun: Command, ddpdoctor: Run, script: Script, tmp_path: Path) -> Watched:
    """Return a function that runs the training in a mode, and gives what is found."""

    def run(mode: str, *command: str) -> list[Any]:
        report = tmp_path / "report.json"
        given = command or (*torchrun, script(TRAINING), mode)
        done = ddpdoctor("run", "-q", *hang_after(10), "--report", str(report), "--", *given)
        return results_in(report, done)

    return run


def test_a_healthy_one_gets_no_finding(watched: Watched) -> None:
    """With loader, model and metric of Ignite's, and the epoch told by a handler."""
    assert watched("healthy") == []


@pytest.mark.parametrize(
    ("mode", "slug", "words"),
    [
        ("plain loader", "no-distributed-sampler", "idist.auto_dataloader"),
        ("plain model", "gradients-not-exchanged", ""),
        ("no epoch", "set-epoch-not-called", "Events.EPOCH_STARTED"),
        ("stops by its own score", "stop-asked-on-one-rank", "idist.all_reduce(score)"),
        ("evaluates on one rank", "rank0-only-collective", "def report(...)"),
    ],
)
def test_a_broken_one_is_named(watched: Watched, mode: str, slug: str, words: str) -> None:
    """In the words of Ignite, where it has words of its own."""
    found = faults(watched(mode))
    assert [each["slug"] for each in found] == [slug]
    assert words in json.dumps(found[0]["findings"][0]["fix"])


@pytest.mark.parametrize(("mode", "slugs"), [("healthy", []), ("plain loader", ["no-distributed-sampler"])])
def test_the_handler_watches(script: Script, tmp_path: Path, mode: str, slugs: list[str]) -> None:
    """Without ``ddpdoctor run``; from its construction to the end of the run."""
    import os
    import subprocess

    report = tmp_path / "report.json"
    environ = {**os.environ, "REPORT": str(report)}
    subprocess.run(
        [*COLD_TORCHRUN, script(TRAINING), mode], env=environ, check=True, capture_output=True, timeout=PATIENCE
    )
    for _ in range(200):
        if report.exists():
            break
        import time

        time.sleep(0.1)  # the monitor ends after the ranks
    assert [each["slug"] for each in json.loads(report.read_text())["results"]] == slugs
