"""``ddpdoctor bench``: real collectives and real steps; no figure is compared with another one here."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ddpdoctor.bench import settings
from ddpdoctor.bench.combined import combinations, pasted
from ddpdoctor.bench.setting import ALONE, DDP, SETTINGS, TOGETHER, Setting, Tried
from ddpdoctor.bench.settings import Tuned, candidates, tune
from ddpdoctor.bench.spread import Spread, interval, is_faster, is_slower, ratios, slowest
from ddpdoctor.cli.bench import sizes
from ddpdoctor.examine.target import Target
from ddpdoctor.facets import NotRun
from ddpdoctor.report.bench.text import ratio_text, size_text, time_text, tuned_text
from ddpdoctor.report.html.bench_page import bench_page

if TYPE_CHECKING:
    from pathlib import Path

    from helpers import Run, Script

    from ddpdoctor.jobs.pool import Jobs

MODEL = """
import torch
from torch import nn

def build_model():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

class Leaves(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.left = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, inputs):
        return self.used(inputs)

def build_leaving():
    return Leaves()

def example_batch():
    return torch.randn(4, 8)
"""


def test_what_one_round_denies_is_no_difference() -> None:
    """Faster and slower are said of all rounds; the round's own base is what counts."""
    assert slowest([[1.0, 5.0], [2.0, 3.0]]) == [2.0, 5.0]
    assert ratios([2.0, 30.0, 8.0], [1.0, 10.0, 4.0]) == Spread(2.0, 2.0, 3.0)
    assert is_faster(Spread(0.5, 0.6, 0.9))
    assert not is_faster(Spread(0.5, 0.6, 0.99))
    assert is_slower(Spread(1.1, 1.2, 1.3))
    assert not is_slower(Spread(0.9, 1.2, 1.3))
    assert ratio_text(Spread(0.5, 0.6, 0.9)) == "40% faster (10% to 50%)"
    assert ratio_text(Spread(0.9, 1.2, 1.3)) == "not told apart (10% faster to 30% slower)"


def test_figures_have_their_unit() -> None:
    """Times and sizes are shown in the unit that fits."""
    assert time_text(Spread(0.001, 0.0025, 0.01)) == "2.5 ms (1 to 10)"
    assert time_text(Spread(1e-6, 5e-6, 1e-5)) == "5 us (1 to 10)"
    assert [size_text(each) for each in (12, 2048, 3 << 20, 5 << 30)] == ["12 B", "2 KiB", "3 MiB", "5 GiB"]


def test_a_range_of_sizes_ends_with_its_last() -> None:
    """Whoever asks for 1 MiB gets it, though the steps in between pass it over."""
    context: Any = None

    assert sizes(context, context, "1K:1M") == (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 20)
    assert sizes(context, context, "1K:8K") == (1 << 10, 1 << 13)


def test_an_interval_holds_the_true_median_in_95_of_100_cases() -> None:
    """Two of twelve measurements are left out on each side, one of ten, none of five."""
    assert interval([float(each) for each in range(12)]) == Spread(2.0, 5.5, 9.0)
    assert interval([float(each) for each in range(10)]) == Spread(1.0, 4.5, 8.0)
    assert interval([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(1.0, 3.0, 5.0)
    numbers = random.Random(7)  # noqa: S311 - noise
    drawn = [interval([numbers.gauss(1, 0.1) for _ in range(12)]) for _ in range(2000)]
    assert sum(not each.low <= 1 <= each.high for each in drawn) < 0.05 * 2000


def test_the_fastest_of_many_by_chance_is_not_advised() -> None:
    """Fourteen settings that differ by nothing: one is the fastest, and what is measured again does not say so."""
    numbers = random.Random(3)  # noqa: S311 - noise

    def measured(setting: Setting, count: int, summed: Any = interval) -> Tried:
        rounds = [[numbers.gauss(1, 0.15) for _ in range(count)] for _ in range(2)]
        return Tried(setting, Spread(1.0, 1.0, 1.0), ratios(rounds[0], rounds[1], summed))

    advised = named = 0
    for _ in range(200):
        tried = [measured(each, 5) for each in SETTINGS]
        again = tuple(measured(each, 12) for each in candidates(tried))
        found = Tuned(2, 100, 4, (*tried,), again)
        named += bool(again)
        advised += found.best is not None or found.fastest is not None
        if found.best is None and found.fastest is None:
            assert "No setting is measurably better than DDP's defaults here: leave them." in tuned_text(found)
        if again and not advised:
            assert "was the fastest at first. Measured again" in tuned_text(found)
    assert named > 150
    assert advised < 10


def test_only_what_changes_nothing_else_is_advised() -> None:
    """A setting that asks something of the training is shown, and not called best."""
    fast, base = Spread(0.5, 0.5, 0.5), Spread(1.0, 1.0, 1.0)
    asks, free = Setting("static_graph=True"), Setting("bucket_cap_mb=100", is_free=True)
    names = (ALONE, TOGETHER, DDP, "find_unused_parameters=True", "no_sync, 4 batches a step")
    tried = tuple(Tried(Setting(name), base, base) for name in names)

    asked, measured = Tried(asks, fast, fast), Tried(free, fast, fast)
    without = Tuned(2, 100, 4, (*tried, asked, Tried(free, why_not="no reason")), (asked,))
    assert without.best is None
    assert "leave DDP's defaults" in tuned_text(without)
    assert [each.name for each in candidates(without.tried)] == ["static_graph=True"]
    with_it = Tuned(2, 100, 4, (*tried, asked, measured), (measured,))
    assert "Best here: DistributedDataParallel(model, bucket_cap_mb=100), 50% faster" in tuned_text(with_it)
    assert "2 ranks do 2.00 times the work of one" in tuned_text(with_it)
    page = bench_page(None, with_it, None, [])
    assert page.index("Best here: DistributedDataParallel(model, bucket_cap_mb=100)") < page.index("<table")


def test_what_goes_together_is_tried_together_with_the_best_bucket_size() -> None:
    """The bucket size that was fastest by itself is in all of them; what was refused is in none."""
    one = Spread(1.0, 1.0, 1.0)
    slow = Spread(2.0, 2.0, 2.0)
    tried = tuple(Tried(each, slow if each.name == "bucket_cap_mb=1" else one, one) for each in SETTINGS)
    found = combinations(tried)
    assert [each.name for each in found if each.is_free] == ["bucket_cap_mb=5, gradient_as_bucket_view=True"]
    assert not any("bucket_cap_mb=1," in each.name for each in found)
    assert "find_unused_parameters=True, static_graph=True" in [each.name for each in found]
    refused = tuple(
        Tried(each.setting, why_not="no") if each.setting.name == "bf16_compress_hook" else each for each in tried
    )
    assert not any("bf16" in each.name for each in combinations(refused))
    everything = "\n".join(pasted(max(found, key=lambda each: len(each.given))))
    compile(everything, "pasted", "exec")
    assert "default_hooks.bf16_compress_hook" in everything
    assert "model.no_sync()" in everything


def test_the_fastest_is_told_where_it_asks_something_of_the_training() -> None:
    """Beside the best that asks nothing, with the lines to paste; not where that is about as fast."""
    base, fast, faster = Spread(1.0, 1.0, 1.0), Spread(0.7, 0.7, 0.7), Spread(0.5, 0.5, 0.5)
    names = (ALONE, TOGETHER, DDP, "find_unused_parameters=True", "no_sync, 4 batches a step")
    tried = tuple(Tried(Setting(name, ranks=1 if name == ALONE else None), base, base) for name in names)
    free = Tried(Setting("bucket_cap_mb=5", (("bucket_cap_mb", 5),), is_free=True), fast, fast)
    asks = Setting("static_graph=True", (("static_graph", True),))

    quick = Tried(asks, faster, faster)
    assert [each.name for each in candidates((*tried, free, quick))] == ["bucket_cap_mb=5", "static_graph=True"]
    told = tuned_text(Tuned(2, 100, 4, (*tried, free, quick), (free, quick)))
    assert "Best here: DistributedDataParallel(model, bucket_cap_mb=5), 30% faster" in told
    assert "Fastest of all, where the training takes it (static_graph=True), 50% faster" in told
    assert "  model = DistributedDataParallel(model, static_graph=True)" in told
    assert "Fastest" not in tuned_text(Tuned(2, 100, 4, (*tried, free, quick), (free, Tried(asks, fast, fast))))


def test_the_parts_of_a_batch_are_told_from_noise() -> None:
    """What ranks lose to each other and to the exchange; nothing where rounds contradict each other."""

    def tuned(together: Spread, ratio: Spread, fewer: Spread) -> str:
        one = Spread(1.0, 1.0, 1.0)
        tried = (
            Tried(Setting(ALONE), Spread(0.010, 0.010, 0.011), Spread(0.3, 0.3, 0.3)),
            Tried(Setting(TOGETHER), together, ratio),
            Tried(Setting(DDP), Spread(0.030, 0.030, 0.031), one),
            Tried(Setting("find_unused_parameters=True"), one, Spread(1.1, 1.2, 1.3)),
            Tried(Setting("no_sync, 4 batches a step"), one, fewer),
        )
        return tuned_text(Tuned(2, 100, 16, tried))

    told = tuned(Spread(0.018, 0.020, 0.021), Spread(0.60, 0.66, 0.70), Spread(0.5, 0.6, 0.7))
    assert "since all ranks compute on this host at once: 10 ms (7 to 11)" in told
    assert "for DDP and its exchange: 10.2 ms (9 to 12)" in told
    assert "too small to hide the exchange, 34% of it" in told
    assert "find_unused_parameters=True is 20% slower (10% to 30%): leave it out" in told
    assert "2 x 16 = 32 samples" in told
    noise = tuned(Spread(0.005, 0.020, 0.040), Spread(0.60, 0.66, 1.10), Spread(0.5, 0.6, 0.7))
    assert noise.count("cannot be told from noise on this machine") == 2
    assert "too small" not in noise


def test_collectives_are_measured(ddpdoctor: Run) -> None:
    """Each operation with each size, and the link."""
    done = ddpdoctor("bench", "--sizes", "4K,64K", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)

    operations = ("all_reduce", "all_gather", "broadcast", "parameter server")
    assert {(each["operation"], each["bytes"]) for each in told["operations"]} == {
        (operation, size) for operation in operations for size in (4096, 65536)
    }
    assert all(0 < each["seconds"]["low"] <= each["seconds"]["high"] for each in told["operations"])
    assert told["link_bytes_per_second"] > 0


def test_a_model_is_trained_with_each_setting(jobs: Jobs, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gives a figure, or says why not; a hook that only NCCL has is left out."""
    monkeypatch.setattr(settings, "ROUNDS", 1)
    monkeypatch.setattr(settings, "AGAIN", 1)
    file = script(MODEL)
    said: list[str] = []

    found = tune(jobs, "gloo", Target(file, "build_model"), Target(file, "example_batch"), said.append)

    absent = [each.setting.name for each in found.tried if each.seconds is None]
    assert absent in (["DataParallel"], ["bf16_compress_hook", "DataParallel"])
    alone = {each.name for each in SETTINGS}
    assert any(each.setting.name not in alone and each.setting.is_free for each in found.tried), "some go together"
    assert found.parts is not None
    assert all(each.why_not for each in found.tried if each.seconds is None)
    assert (found.size, found.batch) == (4 * (8 * 8 + 8 + 8 * 2 + 2), 4)
    again = sum("the fastest again" in each for each in said)
    assert len(said) - again == len(found.tried), "each once, and DDP once more instead of DataParallel"
    assert again == (len(found.again) + 1 if found.again else 0), "what was fastest, and DDP beside it"


def test_a_model_that_does_not_train_under_ddp_is_said_to(jobs: Jobs, script: Script) -> None:
    """The first sentence of what DDP raised, and the command that says why."""
    file = script(MODEL)

    with pytest.raises(NotRun, match=r"raised RuntimeError: Expected to have finished.*ddpdoctor check --model"):
        tune(jobs, "gloo", Target(file, "build_leaving"), Target(file, "example_batch"), lambda _: None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--sizes", "big"), "'big' is not a size"),
        (("--sizes", "1M:1K"), "the second size is smaller"),
        (("--model", "nowhere.py:build"), "nowhere.py"),
        (("--nproc", "1"), "--nproc"),
        (("--output", "/nowhere/x.json"), "there is no folder /nowhere"),
        (("--output", "/proc/x.json"), "no file can be made in /proc"),
        (("--backend", "nccl", "--nproc", "64"), "need 64 GPUs"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(ddpdoctor: Run, arguments: tuple[str, ...], told: str) -> None:
    """Exit status 2, and what is wrong."""
    done = ddpdoctor("bench", *arguments)

    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 4


def test_the_report_goes_to_a_file(ddpdoctor: Run, tmp_path: Path) -> None:
    """Nothing on standard output then."""
    done = ddpdoctor("bench", "--sizes", "4K", "--output", str(tmp_path / "bench.txt"))

    assert (done.returncode, done.stdout) == (0, "")
    assert "all_reduce" in (tmp_path / "bench.txt").read_text()


def test_rounds_end_where_they_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rounds of each setting, six of what is measured again, if that has begun in time; it is said then."""

    def tuned(each: float) -> Tuned:
        made = [0.0]
        monkeypatch.setattr("ddpdoctor.bench.settings.time.monotonic", lambda: made[0])

        def seconds(_: settings.Tuning, setting: Setting) -> float:
            made[0] += each
            return 0.5 if setting.is_free else 1.0

        monkeypatch.setattr(settings.Tuning, "_seconds", seconds)
        monkeypatch.setattr(settings.Tuning, "rounds", counting)
        jobs: Any = SimpleNamespace(world_size=2)
        return tune(jobs, "gloo", Target("m.py", "m"), Target("m.py", "b"), lambda _: None)

    of_rounds, rounds = settings.Tuning.rounds, []

    def counting(self: settings.Tuning, *given: Any) -> tuple[Tried, ...]:
        made: list[str] = []
        self.progress = made.append
        found = of_rounds(self, *given)
        rounds.append(len({each.partition(":")[0] for each in made}))
        return found

    assert not tuned(0.1).is_cut
    assert rounds == [settings.ROUNDS, settings.ROUNDS, settings.AGAIN]
    rounds.clear()
    slow = tuned(1.0)
    assert slow.is_cut
    assert rounds == [4, settings.AGAIN], "nothing together"
    rounds.clear()
    assert tuned(1.9).is_cut
    assert rounds == [4, 6]
    rounds.clear()
    assert tuned(30.0).again == ()
    assert rounds == [4]
