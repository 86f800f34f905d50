"""What users of the transformers Trainer get wrong, with the real package on two ranks: told first, in its words."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from frameworks import TRAINER, hang_after
from helpers import Command, Run, Script

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
]
OWN = "class Mine(Trainer):\n    pass\n"
LOADER = (
    "class Mine(Trainer):\n    def get_train_dataloader(self):\n"
    "        return DataLoader(self.train_dataset, batch_size=4, shuffle=True, collate_fn=self.data_collator)\n"
)
PREPARED = LOADER.replace("DataLoader(", "self.accelerator.prepare(DataLoader(", 1).replace("or)\n", "or))\n")
SELF_MODEL = (
    "class Mine(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):\n"
    "        outputs = self.model(**inputs)\n"
    '        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]\n'
)
EVALUATES = (
    "class Mine(Trainer):\n    def evaluate(self, *args, **kwargs):\n        right = [0]\n"
    "        with torch.no_grad():\n"
    "            for batch in self.get_eval_dataloader():\n"
    '                right.append((self.model(**batch)["logits"].argmax(-1) == batch["labels"]).sum().item())\n'
    '        self.log({"eval_right": sum(right) + 100 * self.args.process_index})\n        return {}\n'
)
CALLBACK = """class Norm(TrainerCallback):
    def on_epoch_end(self, args, state, control, model=None, **kwargs):
        if state.is_world_process_zero:
            norm = sum(each.norm() for each in model.parameters()).detach()
            torch.distributed.all_reduce(norm)

class Mine(Trainer):
    pass
"""
SUMMED = """class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        num_items = len(labels) if num_items_in_batch is None else num_items_in_batch
        loss = F.cross_entropy(outputs["logits"], labels, reduction="sum") / num_items
        return (loss, outputs) if return_outputs else loss
"""
RIGHTLY = SUMMED.replace("/ num_items\n", "/ num_items\n        loss = loss * self.accelerator.num_processes\n")
COUNTED = (
    ("    def forward(self, x, labels=None):", "    def forward(self, x, labels=None, **kwargs):"),
    ('"loss": F.cross_entropy(logits, labels)', '"loss": F.cross_entropy(logits, labels) if labels is not None else 0'),
)
BESIDE = """class Mine(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.beside = torch.nn.Linear(4, 1)

    def create_optimizer(self, *args, **kwargs):
        made = super().create_optimizer(*args, **kwargs)
        made.add_param_group({"params": list(self.beside.parameters())})
        return made

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        loss = outputs["loss"] + self.beside(inputs["x"][:, :4]).square().mean()
        return (loss, outputs) if return_outputs else loss
"""
BY_HAND = """class Mine(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = model(**self._prepare_inputs(inputs))["loss"]
        loss.backward()
        return loss.detach()
"""
STREAM = """class Stream(IterableDataset):
    def __init__(self, samples):
        self.data = Data(samples)

    def __iter__(self):
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        for index in range(rank, len(self.data), world):
            yield self.data[index]

class Mine(Trainer):
    pass
"""
STREAMS = (
    ("import DataLoader, Dataset", "import DataLoader, Dataset, IterableDataset"),
    ("import torch\n", "import os\nimport torch\n"),
    ("train_dataset=Data(64)", "train_dataset=Stream(64)"),
    ("num_train_epochs=3", "max_steps=6"),
)
MASKS = """class Masks:
    def __init__(self, seed=42):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, rows):
        x = torch.stack([row["x"] for row in rows])
        kept = torch.rand(x.shape, generator=self.generator) > 0.2
        return {"x": x * kept, "labels": torch.stack([row["labels"] for row in rows])}

class Mine(Trainer):
    pass
"""
MASKED = (
    (OWN, MASKS),
    ("        compute_metrics=metrics,\n", "        compute_metrics=metrics, data_collator=Masks(),\n"),
)
TRAIN = "    trainer.train()\n"
EVALUATE = "    trainer.evaluate()\n"

Edits = tuple[tuple[str, str], ...]
BROKEN: dict[str, tuple[str, str, Edits]] = {
    "a loader of its own": ("no-distributed-sampler", "return self.accelerator.prepare(", ((OWN, LOADER),)),
    "evaluated on one rank": (
        "rank0-only-collective",
        "result = trainer.evaluate(...)",
        ((EVALUATE, "    if trainer.is_world_process_zero():\n        trainer.evaluate()\n"),),
    ),
    "predicted by the first process": (
        "rank0-only-collective",
        "result = trainer.predict(...)",
        ((EVALUATE, "    if args.process_index == 0:\n        trainer.predict(Data(12))\n"),),
    ),
    "a collective in a callback": (
        "rank0-only-collective",
        "+all_reduce(...)",
        ((OWN, CALLBACK), (TRAIN, "    trainer.add_callback(Norm())\n    trainer.train()\n")),
    ),
    "the bare model in compute_loss": ("forward-bypasses-ddp", "+    outputs = model(**inputs)", ((OWN, SELF_MODEL),)),
    "a head beside the model": (
        "gradients-exchanged-in-part",
        "-self.beside = torch.nn.Linear(4, 1)\n+model.beside = torch.nn.Linear(4, 1)",
        ((OWN, BESIDE),),
    ),
    "an evaluation of its own": ("monitored-metric-of-one-rank", "compute_metrics", ((OWN, EVALUATES),)),
    "a folder of each rank's own": (
        "checkpoint-folders-differ",
        '+TrainingArguments(output_dir="out", ...)',
        (
            ('output_dir="out"', 'output_dir=f"out/{os.getpid()}", load_best_model_at_end=True'),
            ('save_strategy="no"', 'save_strategy="epoch"'),
            ("import torch\n", "import os\nimport torch\n"),
        ),
    ),
    "a sum of losses over the items of all ranks": (
        "loss-over-all-items",
        "* self.accelerator.num_processes",
        ((OWN, SUMMED), *COUNTED, ("    trainer.evaluate()\n", "")),
    ),
    "backward of the loss, where it accumulates": (
        "framework-backward-bypassed",
        "+self.accelerator.backward(loss / self.args.gradient_accumulation_steps)",
        ((OWN, BY_HAND), ("logging_steps=4", "logging_steps=4, gradient_accumulation_steps=4")),
    ),
    "a stream that gives out its rank's share": ("sharded-twice", "+for sample in samples:", ((OWN, STREAM), *STREAMS)),
    "resumed from a folder of each rank's own": (
        "checkpoint-folders-differ",
        '+TrainingArguments(output_dir="out", ...)',
        (
            ('output_dir="out"', "output_dir=f\"out/{os.environ['RANK']}\""),
            ('save_strategy="no"', 'save_strategy="epoch"'),
            ("import torch\n", "import os\nimport torch\n"),
            (TRAIN, "    trainer.train()\n    trainer.train(resume_from_checkpoint=True)\n"),
        ),
    ),
    "masks of one seed": (
        "same-noise-on-ranks",
        "+self.generator = torch.Generator().manual_seed(seed + 1000 * args.process_index)",
        MASKED,
    ),
    "parameters without a gradient": (
        "unused-parameters",
        "TrainingArguments(ddp_find_unused_parameters=True)",
        (
            ("        self.body =", "        self.extra = nn.Linear(3, 3)\n        self.body ="),
            ("logging_steps=4", "logging_steps=4, ddp_find_unused_parameters=False"),
        ),
    ),
}
HEALTHY: dict[str, Edits] = {
    "as it is": (),
    "a loader that Accelerate shares out": ((OWN, PREPARED),),
    "accumulated": (("logging_steps=4", "logging_steps=4, gradient_accumulation_steps=2"),),
    "a sum of losses over all items, for all ranks": ((OWN, RIGHTLY), *COUNTED, ("    trainer.evaluate()\n", "")),
    "a stream that the Trainer shares out": (
        (OWN, STREAM.replace('int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])', "0, 1")),
        *STREAMS,
    ),
    "masks of a seed of each rank's own": (
        *MASKED,
        ("data_collator=Masks()", "data_collator=Masks(42 + args.process_index)"),
    ),
    "saved by one rank, where the model is whole": (
        ("    trainer.save_model()\n", "    if trainer.is_world_process_zero():\n        trainer.save_model()\n"),
    ),
}

Watched = Callable[[Edits], tuple["subprocess.CompletedProcess[str]", list[dict[str, Any]]]]


@pytest.fixture
def watched(ddpdoctor: Run, script: Script, torchrun: Command, tmp_path: Path) -> Watched:
    """Return what runs the script with other parts on two ranks, and returns what was found."""

    def run(edits: Edits) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        text = TRAINER
        for before, after in edits:
            assert before in text, before
            text = text.replace(before, after)
        report = tmp_path / "report.json"
        options = (*hang_after(5), "--on-finding", "raise", "--report", str(report))
        done = ddpdoctor("run", *options, "--", *torchrun, script(text), cwd=tmp_path)
        return done, json.loads(report.read_text())["results"]

    return run


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_told_first_in_trainers_words(watched: Watched, name: str) -> None:
    """The check, and the lines to paste."""
    slug, fix, edits = BROKEN[name]
    done, results = watched(edits)

    assert results, done.stdout + done.stderr
    assert results[0]["slug"] == slug, done.stderr
    assert fix in results[0]["findings"][0]["fix"]["diff"]


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("name", HEALTHY)
def test_of_a_healthy_training_nothing_is_said(watched: Watched, name: str) -> None:
    """Also where it only looks like a mistake."""
    done, results = watched(HEALTHY[name])

    assert (done.returncode, results) == (0, []), done.stderr
