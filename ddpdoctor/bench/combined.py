"""Settings of DDP together: which of them are tried after each was tried by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpdoctor.bench.setting import Setting, Tried


def combinations(tried: Sequence[Tried]) -> tuple[Setting, ...]:
    """Return what is tried together: of the settings that were measured those that can go together.

    First what asks nothing of the training loop, with the bucket size that was fastest by itself; then that with each
    of the others, and with all of them but static_graph. What was not measured, since it is refused here, is in none.
    """
    there = {each.setting.name: each.setting for each in tried if each.seconds is not None}
    times = {each.setting.name: each.seconds.middle for each in tried if each.seconds is not None}
    buckets = sorted((name for name in there if name.startswith("bucket_cap_mb")), key=times.__getitem__)
    free = [there[name] for name in (*buckets[:1], "gradient_as_bucket_view=True") if name in there]
    asking = [
        there[name]
        for name in ("static_graph=True", "bf16_compress_hook", "no_sync, 4 batches a step")
        if name in there
    ]
    most = [each for each in asking if each.name != "static_graph=True"]  # which takes no step within no_sync
    sets = [free, *([*free, each] for each in asking), [*free, *most]]
    searched = [there[name] for name in ("find_unused_parameters=True", "static_graph=True") if name in there]
    found = [together(each) for each in (*sets, searched) if len(each) > 1]
    return tuple({each.name: each for each in found}.values())


def together(parts: Iterable[Setting]) -> Setting:
    """Return settings as one; what is said of hooks and loops comes after the arguments."""
    ordered = sorted(parts, key=lambda each: "=" not in each.name)
    return Setting(
        ", ".join(each.name for each in ordered),
        tuple(pair for each in ordered for pair in each.given),
        is_free=all(each.is_free for each in ordered),
    )


def pasted(setting: Setting) -> tuple[str, ...]:
    """Return the lines of a script that make a setting."""
    given = dict(setting.given)
    arguments = [f"{name}={value}" for name, value in setting.given if name not in {"hook", "accumulate", "bare"}]
    lines = [f"model = DistributedDataParallel({', '.join(('model', *arguments))})"]
    if hook := given.get("hook"):
        lines += [
            "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
            f"model.register_comm_hook(None, default_hooks.{hook})",
        ]
    if count := given.get("accumulate"):
        lines += [
            f"with contextlib.nullcontext() if (number + 1) % {count} == 0 else model.no_sync():",
            f"    (criterion(model(inputs), targets) / {count}).backward()",
        ]
    return tuple(lines)
