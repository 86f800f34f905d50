"""How data that ranks split, or order, differently come to be alike on all of them."""

from __future__ import annotations

from ddpdoctor.check import Fix

SPLIT = Fix(
    "split with the same generator on all ranks; where the Subset is the rank's share already, leave the sampler out",
    diff="-train, test = random_split(dataset, lengths)\n"
    "+train, test = random_split(dataset, lengths, generator=torch.Generator().manual_seed(0))",
)
SPLIT_ALIKE = Fix("split with the same generator on all ranks", diff=SPLIT.diff)
SEED = Fix(
    "split, and shuffle, with the same seed on all ranks",
    diff="-split = dataset.train_test_split(test_size=0.1)\n+split = dataset.train_test_split(test_size=0.1, seed=42)\n"
    "-dataset = dataset.shuffle()\n+dataset = dataset.shuffle(seed=42)",
)
SORT = Fix(
    "list the samples in the same order on all ranks",
    diff="-files = glob.glob(pattern)\n+files = sorted(glob.glob(pattern))\n"
    "-random.shuffle(files)\n+random.Random(0).shuffle(files)",
)
SPLIT_TENSORS = Fix(
    "split, and order, the data with the same seed on all ranks",
    diff="-order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + rank))\n"
    "+order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))",
)
