"""A collective refuses the tensors that it is given: count, size, dtype, device or layout.

## What happens

Before anything is sent, each rank compares its own arguments. A list must have one tensor for each rank, all of the
size and dtype of what is sent; `all_gather_into_tensor` and `reduce_scatter_tensor` want the world size times the one
in the other; the splits of `all_to_all_single` must add up; NCCL takes contiguous tensors only. Usual reasons: a list
made for another number of ranks, a transposed or sliced tensor, a last batch that is smaller than the buffer that was
made for it. Gloo tells of a tensor on another device in the words of a dtype, "invalid tensor type at index 0 (expected
TensorOptions(dtype=float, device=cpu, ...), got TensorOptions(dtype=float, device=cuda:0, ...))": the dtypes are equal.

## How to be sure

Print `len(list)`, the shapes, dtypes and `is_contiguous()` before the call, on each rank.

## How to mend it

Make buffers from what is sent (`torch.empty_like`) and from `dist.get_world_size()`; call `.contiguous()`. Where ranks
have different amounts, gather the lengths first and pad, or use `all_gather_object`.

## Versions and sources

Holds for torch 2.2 to 2.13; seen with torch 2.13 CPU. Sources: torch's ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp, and
torch/distributed/distributed_c10d.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.check import Ailment, Finding, Fix, Record, Severity, log_pattern

AILMENT = Ailment("DDP749", Severity.ERROR)

COUNT = (
    r"Tensor list input to scatter/gather must match number of collective participants"
    r"|invalid (?:in|out)put tensor list (?:size, must be world size|at index \d+ \(expected length \d+, got \d+\))"
    r"|Incorrect (?:in|out)put list size \d+\. \w+ list size should be \d+"
    r"|(?:in|out)put tensor list size \d+ does not match world size \d+"
)
SIZE = (
    r"All tensor operands to scatter/gather must have the same (?:number of elements|size)"
    r"|output tensor size must be equal to world_size times input tensor size"
    r"|input tensor must be the same size as output size times world size"
    r"|ProcessGroupGloo::\w+: invalid tensor size at index \d+ \(expected \([\d, ]*\), got \([\d, ]*\)\)"
    r"|outputShape\[0\] \* worldSize == inputShape\[0\] \(\d+ vs\. \d+\)"
)
SPLITS = r"Split sizes doesn't match total dim 0 size"
DTYPE = (
    r"Invalid usage of tensors with different dtypes|ProcessGroupGloo::\w+: invalid tensor type at index \d+"
    r"|All tensor operands to scatter/gather must have the same type"
)
GATHERED = Fix(
    "make the list from the world size",
    diff="+parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]\n dist.all_gather(parts, part)",
)
SCATTERED = Fix(
    "give as many objects as there are ranks, one of which can be a list",
    diff="-dist.scatter_object_list(mine, items, src=0)\n"
    "+world = dist.get_world_size()\n+dist.scatter_object_list(mine, [items[at::world] for at in range(world)], src=0)",
)
ON_DEVICES = re.compile(
    r"expected (?:TensorOptions\(dtype=(?P<dtype>[a-z0-9_ ]{1,40}?)(?: \(default\))?, device=(?P<one>\w+)"
    r"[^\n]{0,300}?got TensorOptions\(dtype=(?P=dtype)(?: \(default\))?, device=(?P<other>(?!(?P=one)\b)\w+)"
    r"|(?P<of_one>CPU|CUDA)(?P<kind>\w+)Type, got (?P<of_other>(?!(?P=of_one))CPU|CUDA)(?P=kind)Type)"
)
TAKEN = {"cpu", "cuda"}  # what gloo takes; of other devices: no-backend-for-device
LAYOUT = r"(?:ValueError|RuntimeError|DistBackendError): Tensors must be (?:contiguous|non-overlapping and dense)"


@log_pattern(COUNT)
def of_another_count(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find a list that was made for another number of ranks."""
    yield Finding(
        "a collective got a list of tensors whose length is not the number of ranks in its group",
        (record.proof(match, "one tensor for each rank of the group"),),
        SCATTERED if "scatter_object_list" in record.text else GATHERED,
        record.place,
    )


@log_pattern(SIZE)
def of_another_size(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find a buffer of another size than what is sent."""
    yield Finding(
        "a collective got a buffer whose size does not fit what is sent",
        (record.proof(match, "buffers of the size of what is sent, times the ranks where they hold all shares"),),
        Fix(
            "make the buffer from what is sent, in each call: a last batch is smaller",
            diff="+out = torch.empty(dist.get_world_size() * part.shape[0], *part.shape[1:], dtype=part.dtype, "
            "device=part.device)\n dist.all_gather_into_tensor(out, part)",
        ),
        record.place,
    )


@log_pattern(SPLITS)
def of_other_splits(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Each rank adds up its own splits: no other rank is asked yet."""
    yield Finding(
        "all_to_all_single got splits that do not add up to the rows of their tensor on this rank",
        (record.proof(match, "sum(input_split_sizes) == input.shape[0], sum(output_split_sizes) == output.shape[0]"),),
        Fix(
            "count the rows of this very batch, tell the other ranks, and make the output from what they tell",
            diff="+sent = torch.tensor(input_splits, device=tokens.device)   # adds up to tokens.shape[0]\n"
            "+got = torch.empty_like(sent)\n+dist.all_to_all_single(got, sent)\n"
            "+out = tokens.new_empty(int(got.sum()), *tokens.shape[1:])\n"
            " dist.all_to_all_single(out, tokens, got.tolist(), sent.tolist())",
        ),
        record.place,
    )


@log_pattern(DTYPE)
def of_another_dtype(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find a buffer of another dtype than what is sent; or on another device, where the dtypes are equal."""
    if apart := ON_DEVICES.search(record.text, match.start()):
        yield from _on_two_devices(record, match, apart)
        return
    yield Finding(
        "a collective got tensors of different dtypes",
        (record.proof(match, "one dtype in all tensors of the call"),),
        Fix(
            "make the buffers from what is sent",
            diff="-parts = [torch.zeros(n) for _ in range(world_size)]\n"
            "+parts = [torch.empty_like(part) for _ in range(world_size)]",
        ),
        record.place,
    )


def _on_two_devices(record: Record, match: re.Match[str], apart: re.Match[str]) -> Iterator[Finding]:
    one = (apart["one"] or apart["of_one"]).lower()
    other = (apart["other"] or apart["of_other"]).lower()
    if {one, other} <= TAKEN:
        yield Finding(
            f"a collective got tensors on different devices, of {one} and of {other}",
            (record.proof(match, "all tensors of the call on one device"),),
            Fix(
                "make the buffers from what is sent, which takes its device as well",
                diff="-parts = [torch.zeros(n) for _ in range(world_size)]\n"
                "+parts = [torch.empty_like(part) for _ in range(world_size)]",
            ),
            record.place,
        )


@log_pattern(LAYOUT)
def of_another_layout(record: Record, match: re.Match[str]) -> Iterator[Finding]:
    """Find a view that does not lie in one piece."""
    yield Finding(
        "a collective of NCCL got a tensor that is not contiguous: a transposed, expanded or sliced view",
        (record.proof(match, "tensor.is_contiguous() is True"),),
        Fix(
            "copy it into one piece first",
            diff="-dist.all_reduce(x.t())\n+part = x.t().contiguous()\n+dist.all_reduce(part)",
        ),
        record.place,
    )
