"""The share of an attention's heads that a rank of tensor parallelism was given, by the numbers of a refused view."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from ddpdoctor.check import Ambiguity, Finding, Fix

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence, Record

TENSOR_PARALLEL = (
    r"\btp[-_](?:size|plan|degree)\b|tensor[-_ ](?:model[-_ ])?parallel|TensorParallel"
    r"|torchtitan[/\\]models[/\\][^\n]{1,80}, in forward"  # its models take the size of a head from their own sizes
)
HEADS = re.compile(
    r"\.(?:view|reshape)\([^\n]{0,80}-1, *(?:self\.)?\w*(?:head_dim|head_size|dim_head|hd|hidden_size_per)\w*"
)

MOST = 64  # a share with more parts is a wrong shape


def share_of_heads(match: re.Match[str]) -> Fraction | None:
    """Return how much of a head a rank has, or of all heads where they are numbered; None where it is no such share."""
    heads, size = int(match["heads"]), int(match["size"])
    head = int(match["batch"]) * int(match["length"]) * int(match["head"])
    share = Fraction(size, head * abs(heads)) if head and heads else Fraction(0)
    if heads > 0:
        return share if share.numerator == 1 < share.denominator and heads % share.denominator == 0 else None
    return share if share and 1 < share.denominator <= MOST else None


def told_of_heads(record: Record, match: re.Match[str], share: Fraction, seen: tuple[Evidence, ...]) -> Finding:
    """Word it; without a sign of tensor parallelism in the log, a wrong size of a head is left open."""
    if match["heads"] != "-1":
        return _all_counted(record, match, share, seen)
    numbers = int(match["batch"]) * int(match["length"]) * int(match["head"])
    whole = f"{share} of a head" if share < 1 else f"{share} heads"
    why = "it has more ranks than" if share < 1 else "its ranks do not divide the"
    return Finding(
        f"each rank of the tensor parallel group has {whole}: {why} key/value heads"
        if seen
        else f"a rank has {whole} of {match['head']} numbers: {match['size']} where a whole one has {numbers}",
        (record.proof(match, f"{numbers} numbers, or a multiple: whole heads of {match['head']}"), *seen),
        Fix(
            f"make the tensor parallel size {share.denominator} times smaller; the other ranks can be data parallel",
            command="grep -E 'num_key_value_heads|n_kv_heads|head_dim' config.json params.json"
            "   # of the model: the largest tensor parallel size",
        ),
        record.place,
        ambiguity=None
        if seen
        else Ambiguity(
            (
                f"the model is split by tensor parallelism, whose size has to be {share.denominator} times smaller",
                "the model is not split, and its head_dim is not the one that the weights were made for",
            ),
            "grep -rniE 'tensor[_-]?(model[_-])?parallel|tp[_-]?(size|degree)' *.toml *.y*ml *.sh *.py",
        ),
    )


def _all_counted(record: Record, match: re.Match[str], share: Fraction, seen: tuple[Evidence, ...]) -> Finding:
    own = int(match["heads"]) // share.denominator
    return Finding(
        f"each rank of the tensor parallel group has {own} of {match['heads']} heads, and the model's code counts all",
        (record.proof(match, f"{own} heads of {match['head']}"), *seen),
        Fix(
            "let the view find the number of heads: a rank has its share of them",
            diff="-q = q.view(bs, seqlen, self.n_heads, self.head_dim)\n"
            "+q = q.view(bs, seqlen, -1, self.head_dim)   # k and v likewise",
        ),
        record.place,
    )
