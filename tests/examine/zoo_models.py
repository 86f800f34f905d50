"""Healthy models of many kinds: ranks load this file and call the factories ``model_x`` and ``batch_x``.

No set stands here: where the file of a model makes one, its parameters are built again under other hash seeds.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch  # noqa: TID253 - only ranks load this file
import torch.distributed as dist  # noqa: TID253
from torch import Tensor, nn  # noqa: TID253


class Language(nn.Module):
    """Tied embeddings, a loss in a dict with None beside it, keyword arguments."""

    def __init__(self) -> None:
        """Tie the output layer to the embedding."""
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("nothing", None)
        self.register_buffer("empty", torch.empty(0))

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **_: Any) -> dict[str, Any]:
        """Return logits and, with labels, the loss."""
        logits = self.head(self.block(self.embed(input_ids)))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits, "cache": None}


def model_language() -> nn.Module:
    """Return a small language model."""
    return Language()


def batch_language() -> dict[str, Tensor]:
    """Return what a tokeniser gives, and more."""
    ids = torch.randint(0, 20, (4, 6))
    return {"input_ids": ids, "labels": ids, "token_type_ids": torch.zeros_like(ids)}


@dataclasses.dataclass
class Output:
    """What some models return."""

    logits: Tensor
    hidden: tuple[Tensor, ...]


class Structured(nn.Module):
    """A frozen backbone, a dataclass output."""

    def __init__(self) -> None:
        """Freeze the backbone."""
        super().__init__()
        self.backbone = nn.Linear(8, 8).requires_grad_(requires_grad=False)
        self.neck = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Output:
        """Return logits and hidden states."""
        hidden = self.neck(self.backbone(x))
        return Output(self.head(hidden), (hidden,))


def model_structured() -> nn.Module:
    """Return it."""
    return Structured()


def batch_structured() -> tuple[Tensor, Tensor]:
    """Return an input and a target, of which forward takes the first."""
    return torch.randn(4, 8), torch.randint(0, 3, (4,))


class Gan(nn.Module):
    """Two networks, both in the output."""

    def __init__(self) -> None:
        """Make the two."""
        super().__init__()
        self.generator = nn.Linear(4, 8)
        self.discriminator = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1))

    def forward(self, z: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Judge the fake and the real."""
        return self.discriminator(self.generator(z)), self.discriminator(real)


def model_gan() -> nn.Module:
    """Return it."""
    return Gan()


def batch_gan() -> list[Tensor]:
    """Return noise and data."""
    return [torch.randn(4, 4), torch.randn(4, 8)]


class Sequence(nn.Module):
    """Time first, so that the first dimension is not the batch."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.rnn = nn.GRU(8, 8, num_layers=2, dropout=0.2)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and state."""
        outputs, state = self.rnn(x)
        return self.norm(outputs).softmax(-1), state


def model_sequence() -> nn.Module:
    """Return it."""
    return Sequence()


def batch_sequence() -> Tensor:
    """Return a bare tensor."""
    return torch.randn(5, 3, 8)


class Stateful(nn.Module):
    """An exponential average in a buffer, a step counter, noise from three generators."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("average", torch.zeros(8))
        self.step = 0

    def forward(self, x: Tensor) -> Tensor:
        """Subtract the average of what was seen."""
        self.step += 1
        y = self.layer(x + 0.1 * torch.randn_like(x))
        if self.training:
            with torch.no_grad():
                self.get_buffer("average").lerp_(y.mean(0), 0.1)
        result: Tensor = y - self.average + self.step
        return result


def model_stateful() -> nn.Module:
    """Return it."""
    return Stateful()


batch_stateful = batch_structured


class Spectrum(nn.Module):
    """Complex parameters and outputs."""

    def __init__(self) -> None:
        """Make the filter."""
        super().__init__()
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        """Filter."""
        filtered: Tensor = torch.fft.rfft(x) * self.filter
        return filtered


def model_spectrum() -> nn.Module:
    """Return it."""
    return Spectrum()


batch_spectrum = batch_structured


class Generating(nn.Module):
    """Outputs that come from a generator, through a checkpointed block."""

    def __init__(self) -> None:
        """Make the layer."""
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: Tensor) -> Iterator[Tensor]:
        """Yield each layer's output."""
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            yield x


def model_generating() -> nn.Module:
    """Return it."""
    return Generating()


batch_generating = batch_structured


class Contrastive(nn.Module):
    """Compares with the samples of all ranks, as CLIP does."""

    def __init__(self) -> None:
        """Make the two towers."""
        super().__init__()
        self.image = nn.Linear(8, 4)
        self.text = nn.Linear(8, 4)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        """Return the loss."""
        one, other = self.image(image), self.text(text)
        everybody = [torch.zeros_like(other) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, other.detach())
        everybody[dist.get_rank()] = other
        targets = torch.arange(len(image)) + dist.get_rank() * len(image)
        return nn.functional.cross_entropy(one @ torch.cat(everybody).T, targets)


def model_contrastive() -> nn.Module:
    """Return it."""
    return Contrastive()


def batch_contrastive() -> tuple[Tensor, Tensor]:
    """Return pairs."""
    return torch.randn(4, 8), torch.randn(4, 8)


def model_vision() -> nn.Module:
    """Return a network with batch normalisation and dropout, compiled."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    return nn.Sequential(network, nn.Linear(8, 3))


def batch_vision() -> tuple[Tensor, Tensor]:
    """Return images and labels."""
    return torch.randn(8, 3, 8, 8), torch.randint(0, 3, (8,))


def model_sparse() -> nn.Module:
    """Return an embedding with sparse gradients."""
    return nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 2))


def batch_sparse() -> Tensor:
    """Return integers."""
    return torch.randint(0, 50, (4, 6))


def model_half() -> nn.Module:
    """Return a model in bfloat16."""
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)).bfloat16()


def batch_half() -> Tensor:
    """Return bfloat16."""
    return torch.randn(4, 8).bfloat16()


class Detector(nn.Module):
    """Takes a list of images of other sizes, gives a dict of losses."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3)
        self.score = nn.Linear(4, 2)
        self.box = nn.Linear(4, 4)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the losses."""
        features = torch.stack([self.body(image[None]).mean((0, 2, 3)) for image in images])
        return {
            "score": nn.functional.cross_entropy(self.score(features), torch.stack([t["label"] for t in targets])),
            "box": nn.functional.l1_loss(self.box(features), torch.stack([t["box"] for t in targets])),
        }


def model_detector() -> nn.Module:
    """Return it."""
    return Detector()


def batch_detector() -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Return images of two sizes."""
    images = [torch.randn(3, 8, 8), torch.randn(3, 10, 9)]
    return images, [{"label": torch.tensor(1), "box": torch.rand(4)} for _ in images]


class Student(nn.Module):
    """A frozen teacher, hidden in a list."""

    def __init__(self) -> None:
        """Make both."""
        super().__init__()
        self.student = nn.Linear(8, 4)
        self.teacher = [copy.deepcopy(self.student).requires_grad_(requires_grad=False)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the distance."""
        distance: Tensor = (self.student(x) - self.teacher[0](x)).square().mean()
        return distance


def model_student() -> nn.Module:
    """Return it."""
    return Student()


def batch_student() -> Tensor:
    """Return a bare tensor."""
    return torch.randn(4, 8)


class Insisting(nn.Module):
    """Computes in single precision whatever it gets."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return a mean."""
        mean: Tensor = self.layers(x.float()).squeeze(-1)
        return mean


def model_insisting() -> nn.Module:
    """Return it."""
    return Insisting()


batch_insisting = batch_student


def model_wrapped() -> nn.Module:
    """Return a model that is wrapped already."""
    return nn.parallel.DistributedDataParallel(nn.Linear(8, 2))


batch_wrapped = batch_student


def model_compiled() -> nn.Module:
    """Return a compiled model; nobody waits for the compiler."""
    return torch.compile(nn.Sequential(nn.Linear(8, 2), nn.Tanh()))  # type: ignore[return-value]


batch_compiled = batch_student


def model_evaluating() -> nn.Module:
    """Return weight normalisation, in evaluation mode."""
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.BatchNorm1d(8)).eval()


batch_evaluating = batch_student
