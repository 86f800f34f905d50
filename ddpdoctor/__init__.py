"""Finds, proves and mends what is wrong with a PyTorch data-parallel training.

``install()`` watches the training of this process; ``load_state_dict`` and ``checkpoint`` load and repair checkpoints.
What the author of a check needs stands in ``ddpdoctor.check``.
"""

TYPE_CHECKING = False  # as typing's, whose import would take half of the time of `import ddpdoctor`

if TYPE_CHECKING:
    from ddpdoctor import checkpoint
    from ddpdoctor.checkpoint.load import load_state_dict
    from ddpdoctor.facets import BadTarget
    from ddpdoctor.watch.rank.install import install, uninstall

__all__ = ["BadTarget", "checkpoint", "install", "load_state_dict", "uninstall"]

HOMES = {
    "BadTarget": "ddpdoctor.facets",
    "install": "ddpdoctor.watch.rank.install",
    "load_state_dict": "ddpdoctor.checkpoint.load",
    "uninstall": "ddpdoctor.watch.rank.install",
}


def __getattr__(name: str) -> object:
    """Import a name when it is asked for: no command and no rank pays for what it does not use."""
    import importlib

    if name == "checkpoint":
        return importlib.import_module("ddpdoctor.checkpoint")
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
