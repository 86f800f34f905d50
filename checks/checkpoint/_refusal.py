"""What `load_state_dict` said that does not fit, read from a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.check import WRAPPER_NAMES, Log, Record, wrappers_in

if TYPE_CHECKING:
    from ddpdoctor.check import Evidence

HEAD = r"Error\(s\) in loading state_dict for (?P<model>\w+)"
SILENT = r"_IncompatibleKeys\(missing_keys=\[(?P<missing>[^\[\]]*)\], unexpected_keys=\[(?P<unexpected>[^\[\]]*)\]"
MISSING = r"Missing key\(s\) in state_dict: ((?:(?!Unexpected key)[^\n])+)"  # both in a line, where logs are flattened
UNEXPECTED = r"Unexpected key\(s\) in state_dict: ([^\n]+)"
SHAPE = (
    r"size mismatch for ([\w.]+): copying a param (?:with shape|of) torch\.Size\(\[([\d, ]*)\]\) from checkpoint,"
    r" (?:the shape in current model|where the shape) is torch\.Size\(\[([\d, ]*)\]\)"
)
BARE = r"(?:Missing|Unexpected) key\(s\) in state_dict: "
LOUD = rf"{HEAD}|{BARE}"
REFUSED = rf"{LOUD}|{SILENT}"
LOADED = (
    r"(?:oading|oaded|esuming|esumed|estoring|estored) [^\n]{0,60}?\b(?:from|checkpoint|weights|model)[ :'\"=]{1,4}"
    r"(?P<path>[^\s'\",:()]+\.(?:pt|pth|ckpt|bin|safetensors|pkl|tar))\b"
)
PARTS = (HEAD, MISSING, UNEXPECTED, SHAPE)
CONTEXT = (*PARTS, LOADED)
WRAPPED = ("DataParallel", "DistributedDataParallel", "MMDataParallel", "MMDistributedDataParallel")
KEY = re.compile(r"[\"']([^\"']+)[\"']")
FILE = re.compile(r"(?:torch\.load|load_file|load_from_checkpoint)\(\s*f?[\"']([^\"'{}]+)[\"']")


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor whose sizes differ, each as ``8, 4``."""

    key: str
    file: str
    model: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Keys and shapes that do not fit; ``silent`` where `strict=False` passed over them."""

    model: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    shapes: tuple[Shape, ...]
    evidence: tuple[Evidence, ...]
    silent: bool = False
    path: str = "last.pt"

    @property
    def wrapped(self) -> bool:
        """Whether missing keys carry a wrapper's name that no layer has."""
        return any(segment in WRAPPER_NAMES for key in self.missing for segment in wrappers_in(key))

    @property
    def one_sided_compiled(self) -> bool:
        """Whether all that is told are keys of one side, and all of them carry the name torch.compile gives."""
        keys = self.missing or self.unexpected
        return bool(keys) and not (self.missing and self.unexpected) and all("_orig_mod." in key for key in keys)

    @property
    def one_sided(self) -> bool:
        """Whether all that is told are keys with ``module.``, which the other side of this model lacks."""
        wrapped = self.model in WRAPPED
        keys = self.missing if wrapped else self.unexpected
        others = self.unexpected if wrapped else self.missing
        return bool(keys) and not others and not self.shapes and all(key.startswith("module.") for key in keys)


def refusal(record: Record, match: re.Match[str], log: Log) -> Refusal:
    """Read it from the record, or from those that follow where the log has a record for each line."""
    path = record.path or _path(record, log)
    groups = match.groupdict()
    if groups.get("unexpected") is not None:
        missing, unexpected = _keys([groups["missing"]]), _keys([groups["unexpected"]])
        return Refusal("", missing, unexpected, (), (record.proof(match),), silent=True, path=path)
    if groups["model"] is None and not _begins(record, log):
        return Refusal("", (), (), (), ())
    records = [record]
    if "\n" not in record.text or not any(re.search(part, record.text) for part in PARTS[1:]):
        records += _following(record, log)
    text = "\n".join(each.text for each in records)
    evidence = [
        each.proof(hit) for part in PARTS for each in records if (hit := next(re.finditer(part, each.text), None))
    ]
    return Refusal(
        groups["model"] or "the model",
        _keys(re.findall(MISSING, text)),
        _keys(re.findall(UNEXPECTED, text)),
        tuple(Shape(*each) for each in re.findall(SHAPE, text)),
        tuple(dict.fromkeys(evidence))[:4],
        path=path,
    )


def _path(record: Record, log: Log) -> str:
    """Return which file was loaded, by the line that did it or by what was said before."""
    if found := FILE.search(record.text):
        return found[1]
    said = log.first(LOADED)
    return said[1]["path"] if said and said[0].rank in {None, record.rank} else "last.pt"


def _begins(record: Record, log: Log) -> bool:
    """Whether keys without the head of the error are the first that the log has."""
    first = log.first(LOUD)
    return first is not None and first[0] is record


def _following(record: Record, log: Log) -> Iterator[Record]:
    begun = False
    for each in log.records:
        if each is record:
            begun = True
        elif begun and each.rank == record.rank:
            if re.search(HEAD, each.text):
                return
            yield each


def _keys(lists: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for each in lists for key in KEY.findall(each)))
