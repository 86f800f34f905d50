"""Samples of one batch are of different shapes, or of a kind that no batch can be made of.

## What happens

The loader puts the samples of a batch together with `collate_fn`, by default with `torch.stack`, which takes tensors of
one shape: "stack expects each tensor to be equal size, but got [1, 32000] at entry 0 and [1, 31744] at entry 5". The
batches of the ranks differ, so one rank meets such a pair first, and the others wait for it.

## How to be sure

The two shapes say what differs: the last size (a length: crop or pad), the first one of an image (1 and 3 channels, or
an alpha channel: convert), the last two exchanged (rotated images: resize). "found <class 'NoneType'>" is a sample for
which `__getitem__` returned nothing. "IndexError: list index out of range" at `elem = batch[0]` is a batch without
samples: of an empty share, of a `collate_fn` that filters, or the dummy that a framework gives ranks that have no more.

Of the loader that you name (`ddpdoctor check --loader`), ddpdoctor lets `collate_fn` make a batch of the samples that
the sampler chooses first on each rank, where a batch has 64 samples at most.

## How to mend it

Bring the samples to one shape in the data set, or pad them in a `collate_fn` of your own
(`torch.nn.utils.rnn.pad_sequence`). Samples that cannot be used are left out of the list before the sampler divides
it: leaving them out in the loop gives the ranks different numbers of batches.

## Versions and sources

Holds for torch 2.2 to 2.13. Source: torch/utils/data/_utils/collate.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpdoctor.check import Ailment, Evidence, Finding, Fix, Place, Record, Severity, log_pattern, probe

if TYPE_CHECKING:
    from ddpdoctor.check import LoaderExam

AILMENT = Ailment("DDP439", Severity.ERROR)
COLLATES = re.compile(r"_worker_loop|_utils[/\\]collate\.py|_utils[/\\]fetch\.py|\bin \w*collate\w*")
OF_THE_PLACE = re.compile(r"CUDA|NVIDIA|HIP|cuda|device|driver|No module named|cannot import")
IMAGE = 3  # dimensions
COLOURS = {1, 3, 4}


SAID = (
    r"stack expects each tensor to be equal size, but got \[(?P<first>[\d, ]*)\] at entry (?P<one>\d+) and "
    r"\[(?P<second>[\d, ]*)\] at entry (?P<other>\d+)"
    r"|(?P<lengths>each element in list of batch should be of equal size)"
    r"|default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class "
    r"'(?P<kind>[\w.]+)'>"
    r"|(?P<resized>Trying to resize storage that is not resizable)"
    r"|(?P<padding>Unable to create tensor, you should probably activate truncation and/or padding)"
)


@log_pattern(SAID, plain=True)
def in_logs(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Compare the two shapes, or name what is no tensor."""
    if not (match["padding"] or COLLATES.search(record.text)):
        return
    said, fix = _of_shapes(match["first"], match["second"]) if match["one"] else _of_kinds(match)
    yield Finding(said, (record.proof(match, "samples of one shape and kind"),), fix, record.place)


@probe
def of_the_named_loader(loader: LoaderExam) -> Iterator[Finding]:
    """Let collate_fn make a batch of the samples that the sampler chooses first, on each rank."""
    failed = [rank for rank in loader.indexed() if rank.uncollated]
    if not failed:
        return
    raised = failed[0].uncollated
    match = re.search(SAID, raised)
    if match is None and (failed[0].workers or OF_THE_PLACE.search(raised)):
        return  # it may ask for its worker, or for what this machine has not
    if match and match["one"]:
        said, fix = _of_shapes(match["first"], match["second"])
    elif match and not match["padding"]:
        said, fix = _of_kinds(match)
    else:
        said, fix = f"collate_fn makes no batch of the first samples: {raised}", BY_HAND
    yield Finding(
        said,
        tuple(
            Evidence(rank.uncollated, "a batch", f"rank {rank.rank}, collate_fn of the first batch") for rank in failed
        ),
        fix,
        Place(file=loader.file or None),
    )


BY_HAND = Fix(
    "see which of the samples it cannot take, and bring all to one shape and kind before",
    diff="+samples = [loader.dataset[index] for index in next(iter(loader.batch_sampler))]\n"
    "+print([type(each) for each in samples])\n+loader.collate_fn(samples)",
)
OF_PYG = Fix(
    "load graphs with the loader of PyTorch Geometric, which joins them to one graph",
    diff="-from torch.utils.data import DataLoader\n+from torch_geometric.loader import DataLoader",
)
PADDED = Fix(
    "pad the samples of a batch to one length",
    diff="+def collate(batch):\n+    return torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)\n"
    "-loader = DataLoader(data, batch_size=8, sampler=sampler)\n"
    "+loader = DataLoader(data, batch_size=8, sampler=sampler, collate_fn=collate)",
)
RESIZED = Fix(
    "bring the samples to one size in the data set",
    diff="+transforms.Resize((224, 224)),\n transforms.ToTensor(),",
)
CONVERTED = Fix(
    "open all images in one mode",
    diff='-image = Image.open(path)\n+image = Image.open(path).convert("RGB")',
)


def _of_shapes(first: str, second: str) -> tuple[str, Fix]:
    one, two = ([int(size) for size in text.split(", ") if size] for text in (first, second))
    said = f"two samples of a batch have the shapes [{first}] and [{second}], and torch.stack takes one"
    if len(one) != len(two) or (len(one) == IMAGE and {one[0], two[0]} <= COLOURS and one[0] != two[0]):
        return f"{said}: images of one channel are among those of three", CONVERTED
    differing = [place for place, (size, other) in enumerate(zip(one, two, strict=True)) if size != other]
    if len(differing) == 1:
        return f"{said}: they differ in dimension {differing[0]}, a length", PADDED
    return said, RESIZED


def _of_kinds(match: re.Match[str]) -> tuple[str, Fix]:
    if (match["kind"] or "").startswith("torch_geometric."):
        return f"a sample is a graph ({match['kind']}), of which torch's own loader can make no batch", OF_PYG
    if match["kind"]:
        nothing = match["kind"] == "NoneType"
        said = "a sample is None: __getitem__ returned nothing for it" if nothing else f"a sample is a {match['kind']}"
        return f"{said}, and no batch can be made of it", Fix(
            "leave such samples out of the list before the sampler divides it"
            if nothing
            else "return tensors, numbers, or lists and dicts of them",
            diff="+self.paths = [path for path in paths if is_usable(path)]   # the same on all ranks"
            if nothing
            else "-return sample\n+return torch.as_tensor(sample.values)",
        )
    if match["padding"]:
        return "the samples of a batch have different lengths, and the tokenizer was not told to pad them", Fix(
            "pad and cut them", diff="-tokenizer(texts)\n+tokenizer(texts, padding=True, truncation=True)"
        )
    if match["lengths"]:
        return "the lists of a batch's samples have different lengths", PADDED
    return "a tensor of a batch's samples is of another shape than the first one", PADDED


@log_pattern(
    r"collate\.py\", line \d+, in (?:default_)?collate\n[^\n]{0,20}elem = batch\[0\]\n"
    r"(?:[^\n]{0,40}[~^]+[^\n]{0,40}\n)?[^\n]{0,12}IndexError: list index out of range",
    plain=True,
)
def of_none(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """A batch without samples: a collate_fn filtered them all, or the rank's last batch is a dummy."""
    yield Finding(
        "a batch of this rank has no samples, and none can be made of it",
        (record.proof(match, "a sample or more in each batch"),),
        Fix(
            "leave samples out before the sampler divides them, not in collate_fn; where the framework gives ranks "
            "without samples an empty batch, return it as it is",
            diff=" def collate(samples):\n+    if not samples:\n+        return {}   # as fairseq takes it\n"
            "     return default_collate(samples)",
        ),
        record.place,
    )
