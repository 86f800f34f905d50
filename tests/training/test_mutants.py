"""Healthy trainings of many kinds are silent; mutants of them, one line away, are named once and at their line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from mutants import HEALTHY, NEAR, run, trainings

if TYPE_CHECKING:
    from ddpdoctor.jobs.pool import Jobs

TRAININGS = {each.name: each for each in trainings()}
NAMED = {
    ("dqn", "the returns of all are divided by the episodes of one"): "sum-divided-by-own-count",
    ("mlm", "the same masks on all ranks"): "same-noise-on-ranks",
    ("mlm", "the order is drawn per rank"): "slices-overlap",
    ("molecules", "all ranks judge one part of the held-out set"): "evaluation-samples-repeated",
    ("averaged", "rank 0 averages alone"): "evaluated-copy-differs",
    ("averaged", "the average has each rank's own statistics"): "evaluation-statistics-differ",
    ("bandit", "the count of the returns is of one rank"): "sum-divided-by-own-count",
    ("bandit", "the count of what was observed is of one rank"): "sum-divided-by-own-count",
    ("siamese", "the momentum is scheduled by the steps of one process"): "schedule-counts-unshared-steps",
    ("speckle", "the warm-up is as long as an epoch of one process"): "schedule-counts-unshared-steps",
    ("averaged", "the batches are shaken alike on all ranks"): "same-noise-on-ranks",
    ("ddpm", "the times are drawn alike on all ranks"): "same-noise-on-ranks",
    ("crops", "all ranks draw the same crops"): "same-samples-on-ranks",
    ("crops", "all ranks estimate on the same crops"): "evaluation-samples-repeated",
    ("crops", "the gradients of the first micro-batch are exchanged"): "no-sync-on-last-batch",
    ("credit", "the weight is of each rank's rows"): "statistics-of-one-rank",
    ("credit", "each rank draws its own order before it takes its share"): "slices-overlap",
    ("credit", "the areas of the ranks are averaged"): "metric-of-shares-averaged",
    ("speckle", "half of the validation is left out"): "evaluation-samples-repeated",
    ("infinite", "each rank shuffles for itself before it takes its share"): "sampler-seeds-differ",
    ("infinite", "the latents are the same on all ranks"): "same-noise-on-ranks",
    ("links", "the negatives are the same on all ranks"): "same-noise-on-ranks",
    ("pairs", "the negatives are the same on all ranks"): "same-noise-on-ranks",
    ("pairs", "the users of one rank are counted"): "sum-divided-by-own-count",
    ("hidden", "the masks are the same on all ranks"): "same-noise-on-ranks",
    ("bank", "divided twice"): "gradients-not-the-mean",
    ("bank", "the temperature follows each rank's own loss"): "loss-factors-differ",
    ("by_hand", "nothing is exchanged"): "gradients-not-exchanged",
    ("rl", "exchanged after the step"): "gradients-not-exchanged",
    ("evaluated_by_hand", "the accuracy is of one rank"): "metric-of-one-rank",
    ("evaluated_by_hand", "each rank shifts and scales by its own samples"): "statistics-of-one-rank",
    ("evaluated_by_hand", "each rank weighs the classes by its own samples"): "statistics-of-one-rank",
    ("evaluated_by_hand", "each rank evaluates the whole"): "evaluation-summed-over-whole",
    ("compressed", "the indices are each rank's own"): "reduced-value-dropped gradients-differ-after-exchange",
    ("amp", "never wrapped"): "gradients-not-exchanged",
    ("by_hand", "one parameter left out"): "gradients-exchanged-in-part",
    ("gan", "the critic is not wrapped"): "gradients-exchanged-in-part",
    ("by_hand", "the gradient of rank 0 for all"): "gradients-not-the-mean",
    ("by_hand", "the largest for the mean"): "gradients-not-the-mean",
    ("by_hand", "divided twice"): "gradients-not-the-mean",
    ("hook", "the hook sums"): "gradients-not-the-mean",
    ("hook", "the hook gives back what it was given"): "comm-hook-does-not-average",
    ("by_hand", "each rank clips after the exchange, by its own loss"): "gradients-differ-after-exchange",
    ("by_hand", "only every second step is exchanged"): "gradients-differ-after-exchange",
    ("by_hand", "no broadcast at the start"): "replicas-begin-apart",
    ("plain_ddp", "another learning rate on each rank"): "optimizer-options-differ",
    ("plain_ddp", "only rank 0 steps the schedule"): "optimizer-options-differ",
    ("plain_ddp", "rank 0 alone steps"): "step-left-out-on-some-ranks",
    ("plain_ddp", "a rank leaves out what its own loss is too high for"): "step-left-out-on-some-ranks",
    ("accumulation", "the gradients are cleared after each micro-batch"): "gradients-cleared-between-micro-batches",
    ("evaluated_by_hand", "the ranks' roots are averaged"): "metric-of-shares-averaged",
    ("language", "not summed, and multiplied in a line of its own"): "loss-scaled-for-other-count",
    ("tokens", "the loss is the mean of each micro-batch"): "unequal-means-averaged",
    ("tokens", "the predictions are joined rank by rank"): "predictions-out-of-order",
    ("tokens", "the tokens are not added up"): "sum-divided-by-own-count",
    ("permuted", "the order is drawn once"): "own-sampler-repeats-order",
    ("permuted", "the order is drawn from one seed"): "own-sampler-repeats-order",
    ("distilled", "the center is of one rank"): "statistics-of-one-rank",
    ("permuted", "the sum is clipped"): "gradients-not-the-mean",
    ("counted_by_hand", "the order is drawn from one seed"): "own-sampler-repeats-order",
    ("counted_by_hand", "the counts are not added up"): "sum-divided-by-own-count",
    ("sharded", "the counts are not added up"): "sum-divided-by-own-count",
    ("quantised", "each rank moves the codes by its own samples, within DDP"): "statistics-of-one-rank",
    ("quantised", "each rank has a scale of its own"): "comm-hook-does-not-average",
    ("taught", "each rank keeps its own best, by a loss of before the sum"): "best-of-one-rank",
    ("taught", "a window that is not full is stepped within no_sync"): "no-sync-on-last-batch",
    ("codebook", "the codes are of one rank's samples"): "statistics-of-one-rank",
    ("ppo", "a rank leaves out what it has moved too far in"): "step-left-out-on-some-ranks",
    ("accumulation_by_flag", "cleared before each micro-batch"): "gradients-cleared-between-micro-batches",
    ("shared_out", "the parts are never handed round"): "optimizer-shared-out-wrongly",
    ("shared_out", "reduced to rank 0 alone"): "optimizer-shared-out-wrongly",
    ("shared_out", "not reduced"): "optimizer-shared-out-wrongly",
    ("shared_out", "the last parameter is nobody's"): "optimizer-shared-out-wrongly",
    ("shared_out", "all weights come from rank 0"): "optimizer-shared-out-wrongly",
    ("shared_out", "the sum"): "gradients-not-the-mean",
    ("update_by_hand", "not reduced"): "weights-part-without-optimizer",
    ("masters", "the sum"): "gradients-not-the-mean",
    ("masters", "all comes from rank 0"): "optimizer-shared-out-wrongly",
    ("momentum", "the gathered keys are of one slot"): "gather-list-aliased",
    ("momentum", "the bare model is called"): "forward-bypasses-ddp",
    ("loaded_by_hand", "the epoch is not told"): "set-epoch-not-called",
    ("loaded_by_hand", "the sampler shuffles with another seed on each rank"): "sampler-seeds-differ",
    ("loaded_by_hand", "all ranks take the share of rank 0"): "sampler-wrong-rank",
    ("loaded_by_hand", "the count is of one rank"): "metric-of-one-rank",
    ("update_by_hand", "reduced before backward"): "weights-part-without-optimizer",
    ("graph", "cleared on rank 0 alone"): "gradients-cleared-on-some-ranks",
    ("language", "all ranks read the streams of rank 0"): "same-samples-on-ranks",
    ("language", "every rank reads all streams"): "same-samples-on-ranks",
    ("language", "nothing is summed"): "metric-of-one-rank",
    ("language", "the world is left out"): "loss-scaled-for-other-count",
    ("language", "the tokens are not summed but the world is multiplied"): "loss-scaled-for-other-count",
    ("ranking", "the hits are of one rank"): "metric-of-one-rank",
    ("segment", "the same flips on all ranks"): "same-noise-on-ranks",
    ("segment", "the training sampler is of the validation set"): "sampler-of-another-data-set",
    ("buffered", "all take the shards of rank 0"): "slices-overlap",
    ("buffered", "rank 0 alone clears"): "gradients-cleared-on-some-ranks",
    ("functional", "not exchanged"): "weights-part-without-optimizer",
    ("functional", "biases left out"): "weights-part-without-optimizer",
    ("functional", "not shared out"): "same-samples-on-ranks",
    ("pytree", "the reduced bucket is not copied back"): "weights-part-without-optimizer",
    ("rollout", "only the actor is exchanged"): "gradients-exchanged-in-part",
    ("rollout", "not divided"): "gradients-not-the-mean",
    ("buckets", "not multiplied by the ranks"): "loss-scaled-for-other-count",
    ("buckets", "the epoch is not told"): "own-sampler-repeats-order",
    ("folds", "each rank scales by its own rows, through a helper"): "statistics-of-one-rank",
    ("tabular", "every rank has the rows of rank 0"): "slices-overlap",
    ("clip", "backward does not sum"): "gathered-gradients-not-summed",
    ("clip", "backward divides once more"): "gathered-gradients-not-summed",
    ("clip", "backward gives the part of rank 0"): "gathered-gradients-not-summed",
    ("graphs", "the count is of one rank"): "sum-divided-by-own-count",
    ("multitask", "the count is of one rank"): "sum-divided-by-own-count",
    ("multitask", "the moments are of one rank"): "statistics-of-one-rank",
    ("seq2seq", "the tokens are not summed"): "sum-divided-by-own-count",
    ("seq2seq", "each rank stops by its own loss"): "metric-of-one-rank",
    ("diffusion", "the schedule is not resumed"): "state-not-resumed",
    ("wgan", "the count is of one rank"): "sum-divided-by-own-count",
    ("detector", "the epoch is not told"): "set-epoch-not-called",
    ("detector", "the share of rank 0"): "sampler-wrong-rank",
    ("detector", "jitter is alike on all ranks"): "same-noise-on-ranks",
    ("detector", "jitter of each epoch is the same"): "draws-repeat-each-epoch",
    ("detector", "what one rank found"): "reduced-value-dropped",
    ("utterances", "every rank reads the files of rank 0"): "iterable-not-split-by-rank",
    ("utterances", "each rank shuffles the files for itself"): "slices-overlap",
    ("utterances", "the order of each epoch is the same"): "own-sampler-repeats-order",
    ("utterances", "the noise of each epoch is the same"): "draws-repeat-each-epoch",
    ("utterances", "the noise is the same on all ranks"): "same-noise-on-ranks",
    ("utterances", "the errors of one rank"): "reduced-value-dropped",
    ("utterances", "the mean of the ranks' rates"): "metric-averaged-unweighted",
    ("sheets", "the epoch is not told"): "set-epoch-not-called",
    ("sheets", "the world is left out"): "loss-scaled-for-other-count",
    ("retrieval", "the draw of all epochs is one"): "own-sampler-repeats-order",
    ("retrieval", "words are left out alike on all ranks"): "same-noise-on-ranks",
    ("bandit", "the same carts on all ranks"): "same-noise-on-ranks",
    ("forecast", "what is hidden is the same on all ranks"): "same-noise-on-ranks",
    ("forecast", "the losses of one rank"): "reduced-value-dropped",
    ("lines", "the files have one order"): "own-sampler-repeats-order",
    ("lines", "characters are dropped alike in all epochs"): "draws-repeat-each-epoch",
    ("lines", "the hits alone are added up"): "sum-divided-by-own-count",
    ("cartpole", "the bare net is called"): "forward-bypasses-ddp",
    ("cartpole", "of one rank"): "metric-of-one-rank",
    ("bandit", "actions are drawn alike"): "same-noise-on-ranks",
    ("bandit", "divided by the own episodes"): "sum-divided-by-own-count",
    ("bandit", "every rank judges all episodes"): "evaluation-summed-over-whole",
    ("contrast", "the gradient of the gathered is that of one rank"): "gathered-gradients-not-summed",
    ("contrast", "each rank draws the same noise"): "same-noise-on-ranks",
    ("tissue", "the crops are drawn alike on all ranks"): "same-noise-on-ranks",
    ("tissue", "the quotient is formed of each share, and averaged"): "metric-averaged-unweighted",
    ("tissue", "the validation takes the part of rank 0"): "evaluation-samples-repeated",
    ("sentiment", "the shares of the validation overlap"): "evaluation-samples-repeated",
    ("tissue", "the union is of one rank"): "evaluation-partly-of-one-rank",
    ("sentiment", "false negatives are of one rank"): "evaluation-partly-of-one-rank",
    ("sentiment", "F1 is formed of each share, and averaged"): "metric-of-shares-averaged",
    ("ddpm", "the mean of the ranks' quarters"): "metric-of-shares-averaged",
    ("sentiment", "the true positives are added up twice"): "summed-twice",
    ("ddpm", "the counts of the quarters are of one rank"): "evaluation-partly-of-one-rank",
    ("ddpm", "the noise is the same on all ranks"): "same-noise-on-ranks",
    ("ddpm", "scaled twice before the step, as nothing is unscaled"): "clipped-before-unscaling",
    ("ddpm", "no_sync on the last"): "no-sync-on-last-batch",
    ("tasks", "one of five sums is of one rank"): "evaluation-partly-of-one-rank",
    ("load", "workers are not told apart"): "iterable-not-split-by-worker",
    ("load", "ranks are not told apart"): "iterable-not-split-by-rank",
    ("load", "the epoch is not told"): "own-sampler-repeats-order",
    ("load", "one of three averages is not reduced"): "evaluation-partly-of-one-rank",
    ("load", "the quantile of the errors is of one rank"): "reduced-value-dropped",
    ("tasks", "the sums are of one rank"): "metric-of-one-rank",
    ("tasks", "the sums are added up twice"): "summed-twice",
    ("tasks", "the heads are cleared on rank 0 alone"): "gradients-cleared-on-some-ranks",
}


FAR = {
    ("dqn", "rank 0 alone brings its target up to date"): "copy-updated-on-some-ranks",
    ("mlm", "the epoch stays the same"): "own-sampler-repeats-order",
    ("masters", "not exchanged"): "gradients-not-exchanged",
    ("momentum", "the key encoder follows on rank 0 alone"): "copy-updated-on-some-ranks",
    ("per_sample", "each rank adds other noise"): "gradients-differ-after-exchange",
    ("per_sample", "nothing is exchanged"): "gradients-not-exchanged",
    ("compressed", "exchanged but not written back"): "gradients-not-exchanged",
    ("embeddings", "the sparse ones stay each rank's own"): "gradients-exchanged-in-part",
    ("embeddings", "the sum of the sparse ones"): "gradients-not-the-mean",
    ("two_optimizers", "the policy is left out"): "gradients-exchanged-in-part",
    ("two_optimizers", "the sum"): "gradients-not-the-mean",
    ("plain_ddp", "rank 1 trains in evaluation mode"): "training-mode-differs",
    ("by_hand", "all ranks take the share of rank 0"): "same-samples-on-ranks",
    ("rl", "the same episodes on all ranks"): "same-samples-on-ranks",
    ("stream", "the teacher is averaged on rank 0 alone"): "copy-updated-on-some-ranks",
    ("tokens", "the average is updated on rank 0 alone"): "evaluated-copy-differs",
    ("tokens", "the schedule is as long as all micro-batches"): "schedule-counts-micro-batches",
    ("distilled", "the teacher begins with other weights on each rank"): "frozen-module-differs",
    ("permuted", "the ranks permute by themselves"): "slices-overlap",
    ("masked", "numpy is seeded alike"): "same-noise-on-ranks",
    ("masked", "Python's generator is seeded alike"): "same-noise-on-ranks",
    ("autoencoder", "the noise of the forward is alike on all ranks"): "same-noise-on-ranks",
    ("autoencoder", "the values are not added up"): "sum-divided-by-own-count",
    ("centres", "the centres are of one rank's samples"): "statistics-of-one-rank",
    ("queue", "each rank keeps its own keys"): "bank-of-one-rank",
    ("views", "the noise has one seed on all ranks"): "same-noise-on-ranks",
    ("packed", "the perplexity is of one rank's documents"): "metric-of-one-rank",
    ("folds", "each rank scales by its own rows, through a helper"): "statistics-of-one-rank",
    ("packed", "every rank reads all documents"): "same-samples-on-ranks",
    ("targets", "the target is copied on rank 0 alone"): "copy-updated-on-some-ranks",
    ("buffered", "not wrapped"): "gradients-not-exchanged",
    ("buffered", "the seed is the rank's"): "slices-overlap",
    ("functional", "no broadcast"): "replicas-begin-apart",
    ("pytree", "another seed on each rank"): "replicas-begin-apart",
    ("a2c", "the statistics of observations are of one rank and begin late"): "statistics-of-one-rank",
    ("rollout", "the statistics of inputs are of one rank"): "statistics-of-one-rank",
    ("rollout", "the same environments on all ranks"): "same-samples-on-ranks",
    ("buckets", "shuffled by each rank for itself"): "shards-overlap",
    ("a2c", "not wrapped"): "gradients-not-exchanged",
    ("siamese", "the slow copy follows on rank 0 alone"): "copy-updated-on-some-ranks",
    ("taught", "the teacher is rank 0's alone"): "frozen-module-differs",
    ("detector", "boxes of all ranks, and the mean of the ranks"): "loss-scaled-for-other-count",
    ("folds", "each rank has another fold"): "dataset-splits-differ",
    ("forecast", "the schedule is as long as all batches"): "schedule-counts-micro-batches",
}
"""Mutants that show in what was computed, and not where it was changed."""


LIKE = [(each.name, way.what) for each in TRAININGS.values() for way in each.mutants if way.area == HEALTHY]


@pytest.mark.parametrize(("name", "what"), LIKE)
def test_another_way_to_do_the_same_is_silent(name: str, what: str, jobs: Jobs) -> None:
    """What looks like a fault, and is none, ends well too, and the watch finds nothing in it."""
    training = TRAININGS[name]
    way = next(each for each in training.mutants if each.what == what)
    ended = run(way.of(training.text)[0], jobs)

    assert ended.error == ""
    assert ended.found == []


@pytest.mark.parametrize("name", TRAININGS)
def test_a_healthy_training_is_silent(name: str, jobs: Jobs) -> None:
    """The original of all mutants ends well, and the watch finds nothing in it."""
    original = run(TRAININGS[name].text, jobs)

    assert original.error == ""
    assert len(original.result) == 2
    assert original.found == []


EACH_TIME = 2
"""So many mutants of one check run each time, and the others nightly: its fixtures do anyway."""


def _mutants() -> Iterator[Any]:
    """Yield the name of the training and of the mutant, marked where its check has had its turn."""
    seen = Counter[str]()
    for key, slugs in (NAMED | FAR).items():
        seen[slugs] += 1
        yield pytest.param(*key, marks=[pytest.mark.nightly] if seen[slugs] > EACH_TIME else [])


@pytest.mark.parametrize(("name", "what"), [*_mutants()])
def test_a_mutant_is_named_once(name: str, what: str, jobs: Jobs) -> None:
    """One check speaks, one time, where it can of the line that was changed or one beside it; then what it leads to."""
    (mutant,) = (each for each in TRAININGS[name].mutants if each.what == what)
    text, line = mutant.of(TRAININGS[name].text)

    mutated = run(text, jobs)

    assert mutated.error == ""
    assert [each.check.slug for each in mutated.found] == (NAMED | FAR)[name, what].split()
    found = mutated.found[0]
    assert found.finding.place.line is not None
    assert (name, what) in FAR or abs(found.finding.place.line - line) <= NEAR
