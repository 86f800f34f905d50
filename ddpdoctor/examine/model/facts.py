"""What an examination of the user's model tells: plain data that travels between processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpdoctor.host.stack import Frame

TOO_SLOW = "TooSlow"  # the kind of trouble that is no error: a large model, a small machine


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of the state dict."""

    key: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter; ``lazy`` ones have no shape yet."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]
    device: str
    trainable: bool
    lazy: bool = False

    def __str__(self) -> str:
        """Render as ``head.weight [10, 4] float32``."""
        return f"{self.name} {list(self.shape)} {self.dtype}" + ("" if self.trainable else " (frozen)")


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer; a sparse one has no strides."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]
    device: str

    def __str__(self) -> str:
        """Render as ``mask [4, 4] bool``."""
        return f"{self.name} {list(self.shape)} {self.dtype}"


def is_expanded(tensor: Parameter | Buffer) -> bool:
    """Whether several elements share a memory location."""
    sizes = zip(tensor.shape, tensor.stride, strict=False)
    return 0 not in tensor.shape and any(size > 1 and step == 0 for size, step in sizes)


@dataclass(frozen=True, slots=True)
class Layer:
    """A submodule and its class."""

    name: str
    kind: str

    def __str__(self) -> str:
        """Render as ``backbone.bn1 (BatchNorm2d)``."""
        return f"{self.name or 'the model itself'} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Plain:
    """Numbers that an object of the user's holds at ``path`` in the model, and that are not registered with it.

    ``kind`` and ``file`` are of the object's class, which is a Module or not (``module``). ``first`` are the first
    elements, ``sums`` tell whether all are the same.
    """

    path: str
    kind: str
    file: str
    module: bool
    shape: tuple[int, ...]
    first: tuple[float, ...]
    sums: tuple[float, float]

    @property
    def numbers(self) -> str:
        """What is told of the values, so that NaN equals itself."""
        return repr((self.shape, self.first, self.sums))


@dataclass(frozen=True, slots=True)
class Description:
    """A rank's model as its factory gave it, less the wrappers around it (``wrappers``, outermost first).

    ``attributes`` are the public names that the model has and a DDP object has not. ``norms`` are its batch
    normalisation layers, ``inner`` the wrappers around parts of it. DDP is told to leave out what is ``ignored``;
    it is not among the parameters and buffers. ``source`` is the factory's file. ``plain`` are tensors beside these.
    ``files`` are those of the user's modules that were imported to build it.
    """

    kind: str
    wrappers: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    buffers: tuple[Buffer, ...]
    shared: tuple[tuple[str, ...], ...]
    state: tuple[Entry, ...]
    norms: tuple[Layer, ...]
    inner: tuple[Layer, ...]
    attributes: tuple[str, ...]
    ignored: tuple[str, ...]
    source: str | None
    plain: tuple[Plain, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def trainable(self) -> tuple[Parameter, ...]:
        """The parameters that require a gradient."""
        return tuple(parameter for parameter in self.parameters if parameter.trainable)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What the user's model did instead of a step, alone in its process.

    ``frames`` are the user's own, innermost first.
    """

    kind: str
    message: str
    frames: tuple[Frame, ...] = ()

    def __str__(self) -> str:
        """Render as ``ValueError: ... (train.py:31 in forward)``."""
        where = f" ({self.frames[0].file}:{self.frames[0].line} in {self.frames[0].function})" if self.frames else ""
        return f"{self.kind}: {' '.join(self.message.split())[:400]}{where}"


@dataclass(frozen=True, slots=True)
class PlainStep:
    """Forward, loss and backward of the bare model in one rank, with that rank's example batch.

    ``call`` is how the batch was passed. ``unused`` parameters require a gradient and got none though every output
    took part in the loss; the layers of ``without_grad`` ran while torch recorded no graph. ``unregistered`` ones got
    one and are not among ``model.parameters()``; ``created`` ones the model has since this step. ``normed`` maps each
    batch normalisation layer in training mode to the shape of its input.
    """

    call: str = ""
    output: str = ""
    scalar: bool = False
    batch_size: int | None = None
    unused: tuple[str, ...] = ()
    without_grad: tuple[str, ...] = ()
    unregistered: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    normed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A parameter whose gradients differ: their norms, and the norm of the difference over the larger one."""

    name: str
    seen: float
    expected: float
    relative: float


@dataclass(frozen=True, slots=True)
class Parity:
    """Gradients of one step, compared; ``mode`` is how far randomness had to be switched off.

    ``averaged``: DDP's against the mean of what each rank computes alone. ``alone``: that mean against the mean
    over the same batches in one process. ``whole``: one process with the whole batch against that (None when the
    batches cannot be put together), with its ``cause`` where an experiment found it: ``batch norm`` or ``sum``.
    ``overwritten``: buffers saved for backward that the next forward's broadcast changed.
    """

    mode: str = ""
    averaged: tuple[Difference, ...] = ()
    alone: tuple[Difference, ...] = ()
    whole: tuple[Difference, ...] | None = None
    cause: str = ""
    overwritten: tuple[str, ...] = ()
    why_not: str = ""
