"""The watch where Accelerate takes a tracker: ``Accelerator(log_with=Watch())``."""

from __future__ import annotations

from typing import Any

from ddpdoctor.callbacks import needs, parts_of

needs("accelerate", (1, 0))

with parts_of("accelerate"):
    from accelerate.tracking import GeneralTracker  # type: ignore[import-untyped,unused-ignore]

from ddpdoctor.watch.rank.install import install  # noqa: E402 - see above


class Watch(GeneralTracker):  # type: ignore[misc,unused-ignore]  # without accelerate the base class is unknown
    """Watches each process from its construction, before Accelerator makes the process group, to the program's end.

    Takes what ``ddpdoctor.install`` takes.
    """

    name = "ddpdoctor"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, **options: Any) -> None:
        """Switch the watch on."""
        super().__init__(_blank=True)
        self._watch = install(**options)

    @property
    def tracker(self) -> Any:
        """What ``accelerator.get_tracker("ddpdoctor", unwrap=True)`` returns: the watch of this process."""
        return self._watch

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Take no note of options."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Take no note of metrics."""

    def finish(self) -> None:
        """Watch on: Accelerate ends the trackers of its main process alone."""
