"""Where loaders and samplers were made: the line of the user's that called the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch.rank.patch import Patch, Wrap, patch
from ddpdoctor.watch.user_frames import frames, is_users, site_of, variables_of

if TYPE_CHECKING:
    from types import FrameType

    from ddpdoctor.watch.events import Site
    from ddpdoctor.watch.rank.recorder import Recorder


def hook(recorder: Recorder) -> list[Patch]:
    """Replace what makes a DataLoader and a DistributedSampler."""
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler

    return [patch(each, "__init__", _making(recorder)) for each in (DataLoader, DistributedSampler)]


def _making(recorder: Recorder) -> Wrap:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(made: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands in for one
            original(made, *args, **kwargs)
            if recorder.is_rank:
                recorder.safely(_note, recorder, made)

        return __init__

    return wrap


def _note(recorder: Recorder, made: Any) -> None:
    recorder.built.note(made, _outside(made))


def _outside(made: Any) -> Site | None:
    """Return the user's line that has called the class: none of a constructor of a class that is derived from it."""
    users = (each for each in frames() if is_users(each.f_code.co_filename))
    return next((site_of(each) for each in users if not _is_of(each, made)), None)


def _is_of(frame: FrameType, made: Any) -> bool:
    """Whether a frame is a constructor of this very object."""
    code = frame.f_code
    return code.co_name == "__init__" and any(variables_of(frame).get(name) is made for name in code.co_varnames[:1])
