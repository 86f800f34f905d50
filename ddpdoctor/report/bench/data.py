"""What ``bench`` measured, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpdoctor.report.bench.pairs import pairs_data

if TYPE_CHECKING:
    from ddpdoctor.bench.links import Links
    from ddpdoctor.bench.pairs import Pairs
    from ddpdoctor.bench.settings import Tuned
    from ddpdoctor.bench.spread import Spread


def bench_data(links: Links | None, tuned: Tuned | None, pairs: Pairs | None = None) -> dict[str, Any]:
    """Return all figures as plain data: times in seconds, sizes in bytes."""
    data: dict[str, Any] = {}
    if links is not None:
        data |= {"backend": links.backend, "ranks": links.ranks, "link_bytes_per_second": links.link}
        data["operations"] = [
            {
                "operation": each.operation,
                "bytes": each.size,
                "seconds": _spread(each.seconds),
                "bytes_per_second": each.bandwidth(links.ranks),
            }
            for each in links.measured
        ]
    if tuned is not None:
        data |= {"ranks": tuned.ranks, "parameter_bytes": tuned.size, "batch": tuned.batch}
        data["settings"] = [
            {
                "setting": each.setting.name,
                "seconds": _spread(each.seconds),
                "against_ddp": _spread(each.ratio),
                "why_not": each.why_not,
            }
            for each in tuned.tried
        ]
        data["again"] = [{"setting": each.setting.name, "against_ddp": _spread(each.ratio)} for each in tuned.again]
        data["scaling"] = _spread(tuned.scaling)
        data["best"] = tuned.best.setting.name if tuned.best else None
        data["fastest"] = tuned.fastest.setting.name if tuned.fastest else None
    if pairs is not None:
        data["pairs"] = pairs_data(pairs)
    return data


def _spread(values: Spread | None) -> dict[str, float] | None:
    return None if values is None else {"low": values.low, "middle": values.middle, "high": values.high}
