"""The examination of the user's model: whose error it is, what is compared, what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from helpers import CHECKS

from ddpdoctor.examine.model import exam as model_exam, looks
from ddpdoctor.examine.model.exam import ModelExam, examine_model
from ddpdoctor.examine.target import Target
from ddpdoctor.facets import BadTarget, Instrument, NotRun
from ddpdoctor.findings import Finding, Severity
from ddpdoctor.jobs.outcome import Returned

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

HEAD = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def example_batch():
    return torch.randn(4, 8), torch.randn(4, 2)

"""
Examine = Callable[..., ModelExam]


@pytest.fixture
def examine(jobs: Jobs, tmp_path: Path) -> Examine:
    """Return a function that examines a script's ``build_model`` with its ``example_batch``."""

    def run(text: str, *, batch: bool = True) -> ModelExam:
        path = tmp_path / "train.py"
        path.write_text(HEAD + dedent(text))
        target = Target(str(path), "build_model")
        return examine_model(jobs, target, Target(str(path), "example_batch") if batch else None)

    return run


def findings(slug: str, exam: ModelExam) -> list[Finding]:
    """Return what one check says."""
    check = next(check for check in CHECKS if check.slug == slug)
    return [finding for facet in check.of(Instrument.PROBE) for finding in facet.examine(exam)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def build_model():\n    raise ValueError('no weights')",
            r"--model .*ValueError: no weights \(at .*train.py:\d+ in build_model",
        ),
        ("def build_model():\n    sys.exit(3)", r"--model .*exit status 3"),
        ("def build_model():\n    return 'a model'", r"--model .*gave str, expected a torch.nn.Module"),
        ("def other():\n    pass", r"--model: .*has no 'build_model'"),
        ("def build_model():\n    os.abort()", r"--model .*died by signal 6"),
        (
            "def build_model():\n    return nn.Linear(8, 2)\ndef example_batch():\n    raise OSError('no data')",
            r"--batch .*OSError: no data",
        ),
        (
            "def build_model():\n    return nn.Linear(8, 2)\ndef example_batch():\n    sys.exit('bye')",
            r"--batch .*exit status 1",
        ),
    ],
)
def test_a_factory_at_fault_is_named_with_its_option(examine: Examine, text: str, words: str) -> None:
    """One line says whose error it is."""
    with pytest.raises(BadTarget, match=words):
        examine(text)


def test_a_factory_sees_the_variables_of_torchrun_and_its_own_rank(examine: Examine) -> None:
    """A factory that was written for torchrun finds what it reads."""
    exam = examine(
        """
        def build_model(rank, world_size):
            assert (rank, world_size) == (int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]))
            print("building")
            return nn.Linear(8, 2)
        """
    )

    assert [type(outcome) for outcome in exam.steps.wrapped] == [Returned, Returned]


def test_without_a_batch_the_model_is_described_and_steps_are_not_run(examine: Examine) -> None:
    """The state dict is there for the checks of checkpoints."""
    exam = examine("def build_model():\n    return nn.Linear(8, 2)", batch=False)

    assert [(entry.key, entry.shape, entry.dtype) for entry in exam.state] == [
        ("weight", (2, 8), "float32"),
        ("bias", (2,), "float32"),
    ]
    with pytest.raises(NotRun, match="no --batch given"):
        findings("unused-parameters", exam)


@pytest.mark.parametrize(
    ("forward", "batch", "call"),
    [
        ("x", "(X, Y)", "model(batch[0])"),
        ("x, y", "(X, Y)", "model(*batch)"),
        ("x, mask=None", "[X]", "model(*batch)"),
        ("x", "X", "model(batch)"),
        ("x, **rest", "{'x': X, 'y': Y}", "model(**batch)"),
        ("batch", "{'x': X, 'y': Y}", "model(batch)"),
    ],
)
def test_a_batch_is_passed_as_people_pass_it(examine: Examine, forward: str, batch: str, call: str) -> None:
    """By the signature of forward."""
    first = "batch['x']" if forward == "batch" else "x"
    exam = examine(
        f"""
        X, Y = torch.randn(4, 8), torch.randn(4, 2)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 2)

            def forward(self, {forward}):
                return self.layer({first})

        def build_model():
            return Net()

        def example_batch():
            return {batch}
        """
    )

    assert [step.call for step in exam.steps.plain] == [call, call]


UNUSED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        return self.used(x)

def build_model():
    return Net()
"""


def test_unused_parameters_are_named_and_the_cure_was_tried(examine: Examine) -> None:
    """The finding holds what DDP really raised."""
    (finding,) = findings("unused-parameters", examine(UNUSED))

    assert "spare.weight, spare.bias" in finding.message
    assert "Expected to have finished reduction" in finding.evidence[1].seen
    assert "tried here" in finding.fix.summary


def test_where_ddp_cannot_search_no_search_is_advised(examine: Examine) -> None:
    """It was tried, and failed: forward returns an object that DDP does not look into."""
    hidden = UNUSED.replace(
        "class Net", "class Out:\n    def __init__(self, loss):\n        self.loss = loss\n\nclass Net"
    )
    (finding,) = findings("unused-parameters", examine(hidden.replace("self.used(x)", "Out(self.used(x).mean())")))

    assert "does not help" in finding.fix.summary
    assert "find_unused" not in finding.fix.diff
    assert "requires_grad_(False)" in finding.fix.diff


def test_a_layer_that_runs_without_a_graph_is_told_as_such(examine: Examine) -> None:
    """Its parameters are used in forward, and get no gradient all the same; one that is left out is told apart."""
    exam = examine(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.spare, self.encoder = nn.Linear(8, 2), nn.Linear(8, 2), nn.Linear(8, 8)

            def forward(self, x):
                with torch.no_grad():
                    x = self.encoder(x)
                return self.used(x)

        def build_model():
            return Net()
        """
    )

    (finding,) = findings("unused-parameters", exam)
    (without_graph,) = [each for each in finding.evidence if "no graph" in each.seen]
    assert "encoder" in without_graph.seen
    assert "spare" not in without_graph.seen


@pytest.mark.parametrize(
    ("made", "forward", "told"),
    [
        ("torch.randn(8, 8, requires_grad=True)", "self.last(x @ self.weight)", True),
        ("torch.randn(8, 8)", "self.last(x @ self.weight)", False),
        ("None", "self.last(self.keep(x.requires_grad_(True)))", False),
        ("None", "self.last(self.keep(x.clone().requires_grad_(True)))", False),
    ],
)
def test_a_tensor_that_is_to_be_trained_and_no_parameter_is_named(
    examine: Examine, made: str, forward: str, *, told: bool
) -> None:
    """One that requires no gradient is a constant, and an input that the model keeps is none of its parameters."""
    exam = examine(
        f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.last, self.weight = nn.Linear(8, 2), {made}

            def keep(self, x):
                self.weight = x
                return x

            def forward(self, x):
                return {forward}

        def build_model():
            return Net()
        """
    )

    assert [each.message.rpartition(": ")[2] for each in findings("unregistered-parameters", exam)] == (
        ["weight [8, 8]"] if told else []
    )


def test_parameters_that_the_first_forward_makes_are_named(examine: Examine) -> None:
    """DDP has wrapped the model before; one that makes them in ``__init__``, and a lazy one, has none of these."""
    made = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.adapter = nn.Linear(8, 2), {init}

            def forward(self, x):
                if self.adapter is None:
                    self.adapter = nn.Linear(8, 2)
                return self.used(x) + self.adapter(x)

        def build_model():
            return Net()
        """
    (finding,) = findings("parameters-changed-after-wrapping", examine(made.format(init="None")))

    assert "adapter.weight, adapter.bias" in finding.message
    assert findings("parameters-changed-after-wrapping", examine(made.format(init="nn.Linear(8, 2)"))) == []
    assert findings("parameters-changed-after-wrapping", examine(made.format(init="nn.LazyLinear(2)"))) == []


def test_options_that_the_users_file_passes_to_ddp_are_used(examine: Examine) -> None:
    """A script that lets DDP look for unused parameters is healthy."""
    exam = examine(UNUSED + "\ndef train():\n    model = DDP(build_model(), find_unused_parameters=True)\n")

    assert findings("unused-parameters", exam) == []
    assert [type(outcome) for outcome in exam.steps.wrapped] == [Returned, Returned]


def test_the_same_parameters_in_another_order_are_found(examine: Examine) -> None:
    """DDP itself does not notice: it would average one's gradient with the other's."""
    exam = examine(
        """
        class Net(nn.Module):
            def __init__(self, names):
                super().__init__()
                for name in names:
                    setattr(self, name, nn.Linear(8, 8))

            def forward(self, x):
                return self.b(self.a(x))

        def build_model(rank):
            return Net("ab" if rank == 0 else "ba")
        """
    )

    (finding,) = findings("parameters-differ", exam)

    assert "rank 1 builds another model" in finding.message
    assert "b.weight" in finding.evidence[0].seen
    with pytest.raises(NotRun, match="different models"):
        exam.steps.under_ddp()


def test_a_gradient_that_ddp_does_not_average_is_found(examine: Examine) -> None:
    """A parameter that DDP is told to ignore keeps each rank's own gradient; that is on purpose, so a note."""
    exam = examine(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.main, self.own = nn.Linear(8, 2), nn.Linear(8, 2)
                self._ddp_params_and_buffers_to_ignore = ["own.weight"]

            def forward(self, x):
                return self.main(x) + self.own(x)

        def build_model():
            return Net()
        """
    )

    (finding,) = findings("gradients-not-averaged", exam)

    assert "does not average the gradients of 1 parameter: own.weight" in finding.message
    assert finding.severity is Severity.NOTE


def test_a_backward_within_forward_is_among_the_causes(examine: Examine) -> None:
    """Without DDP every parameter gets a gradient, so there is no name to give."""
    exam = examine(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.main, self.extra = nn.Linear(8, 2), nn.Linear(8, 2)

            def forward(self, x):
                self.extra(x).square().mean().backward()
                return self.main(x)

        def build_model():
            return Net()
        """
    )

    (finding,) = findings("unused-parameters", exam)

    assert finding.ambiguity is not None
    assert any("backward() within forward" in cause for cause in finding.ambiguity.causes)


def test_a_step_that_kills_the_process_is_the_models_fault(examine: Examine) -> None:
    """Neither factory is blamed for what forward does."""
    exam = examine(
        """
        class Net(nn.Linear):
            def forward(self, x):
                os.abort()

        def build_model():
            return Net(8, 2)
        """
    )

    (finding,) = findings("step-fails-without-ddp", exam)

    assert "signal 6" in finding.evidence[0].seen


def test_batch_norm_is_known_by_experiment_and_is_a_note(examine: Examine) -> None:
    """With its statistics fixed, one process and the ranks agree."""
    exam = examine("def build_model():\n    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))")

    (finding,) = findings("gradients-differ-from-single-process", exam)

    assert finding.severity is Severity.NOTE
    assert "batch normalisation" in finding.message


def test_a_loss_that_is_a_sum_is_told_from_other_causes(examine: Examine) -> None:
    """DDP's gradient is half of that of one process, exactly."""
    exam = examine(
        """
        class Net(nn.Linear):
            def forward(self, x, y):
                return (super().forward(x) - y).square().sum()

        def build_model():
            return Net(8, 2)
        """
    )

    (finding,) = findings("gradients-differ-from-single-process", exam)

    assert finding.severity is Severity.WARNING
    assert finding.table is not None
    assert [row[3] for row in finding.table.rows] == ["50%", "50%"]


def test_a_buffer_is_overwritten_on_the_ranks_that_receive(examine: Examine) -> None:
    """Rank 0 sends its own; without a second call in the file it is a note."""
    exam = examine(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 2)
                self.register_buffer("scale", torch.ones(2))

            def forward(self, x):
                y = self.layer(x)
                self.scale = 0.9 * self.scale + 0.1 * y.detach().std(0)
                return y * self.scale

        def build_model():
            return Net()
        """
    )

    (finding,) = findings("buffers-overwritten", exam)

    assert finding.severity is Severity.NOTE
    assert [evidence.source for evidence in finding.evidence] == ["rank 1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def build_model():\n    time.sleep(60)",
            r"--model .*did not return in time \(at .*train.py:\d+ in build_model",
        ),
        (
            "def build_model():\n    return nn.Linear(8, 2)\ndef example_batch():\n    time.sleep(60)",
            r"--batch .*did not return in time \(at .*train.py:\d+ in example_batch",
        ),
    ],
)
def test_a_factory_that_hangs_is_named(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    """Told apart by the stack at which it was found."""
    monkeypatch.setattr(looks, "FIRST_LOOK", 1.0)

    with pytest.raises(BadTarget, match=words):
        examine(text)


def test_a_step_that_takes_too_long_is_no_error(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model on a small machine is not broken."""
    monkeypatch.setattr(looks, "FIRST_LOOK", 1.0)
    exam = examine(
        """
        class Net(nn.Linear):
            def forward(self, x):
                time.sleep(60)

        def build_model():
            return Net(8, 2)
        """
    )

    with pytest.raises(NotRun, match="did not end in 1 s"):
        findings("step-fails-without-ddp", exam)


def test_a_hang_under_ddp_is_found(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that waits for the other in the second step of a training, not in the bare model's only one."""
    monkeypatch.setattr(model_exam, "PATIENCE", 2.0)
    monkeypatch.setattr(model_exam, "SLOWER", 0.0)
    exam = examine(
        """
        class Net(nn.Linear):
            def forward(self, x):
                self.calls = getattr(self, "calls", 0) + 1
                if self.calls == 3 and dist.get_rank() == 0:
                    time.sleep(60)
                return super().forward(x)

        def build_model():
            return Net(8, 2)
        """
    )

    (finding,) = findings("step-fails-under-ddp", exam)

    assert "still waiting" in finding.message
