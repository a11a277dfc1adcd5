"""What outputs are worth, by the kind of targets: class labels, or real numbers.

All that depends on the kind is here: the loss of training, how a full model is judged, which sums an evaluation takes
and what they come to, and how several models predict together. What peers answer and how that is scored for
certificates are the forms of `sagefl.selection.scoring`, which follow the same kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from ..selection.own_loss import OwnLoss

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
WORST = float(np.finfo(np.float32).max)  # the error of a model that has diverged: as large as files can hold


def sample_losses(out: Tensor, y: Tensor) -> Tensor:
    """The training loss of every sample: cross-entropy of labels, the mean squared error of values."""
    if y.is_floating_point():
        return F.mse_loss(out.view(y.shape), y, reduction="none").flatten(1).mean(1)
    return F.cross_entropy(out, y, reduction="none")


def batch_loss(out: Tensor, y: Tensor) -> Tensor:
    """The training loss of a batch: that of its samples, in the mean."""
    return F.mse_loss(out.view(y.shape), y) if y.is_floating_point() else F.cross_entropy(out, y)


def clipped_ce(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy clipped at 2 log(classes) and scaled to [0, 1]: a uniform guess scores one half, NaN scores 1."""
    ceiling = 2 * log(logits.shape[-1])
    return F.cross_entropy(logits, y, reduction="none").nan_to_num(nan=ceiling).clamp(max=ceiling) / ceiling


@dataclass(frozen=True)
class Targets(ABC):
    """One kind of targets; `outputs` is the number of classes, or of values."""

    outputs: int
    own_loss: OwnLoss | None = field(default=None, kw_only=True)  # the user's, for risks

    def judge(self, out: Tensor, y: Tensor, metric: str) -> Any:
        """One full model on some samples: its risk in [0, 1] (error), its mean training loss (ce), or all of them."""
        if metric == "error" and self.own_loss is not None:
            return float(self.own_loss.scaled(self.said(out, y), y.numpy()).mean())
        if metric == "error":
            return self.risk(out, y)
        losses = sample_losses(out, y).double()
        return losses.numpy() if metric == "losses" else float(losses.mean())

    @abstractmethod
    def risk(self, out: Tensor, y: Tensor) -> float:
        """The mean loss of predictions, in [0, 1]."""

    @abstractmethod
    def said(self, out: Tensor, y: Tensor) -> npt.NDArray[Any]:
        """Predictions in the form of targets."""

    @abstractmethod
    def own(self, out: Tensor, y: Tensor) -> tuple[float, float]:
        """On a client's own samples: how many are right, or the sum of errors; and the mean clipped loss."""

    @abstractmethod
    def right(self, out: Tensor, y: Tensor) -> int:
        """How many predictions are good: right, or less than half the clip away."""

    @abstractmethod
    def tally(self, out: Tensor, y: Tensor) -> npt.NDArray[Any]:
        """Sums over test samples from which metrics can be computed."""

    @abstractmethod
    def measures(
        self, tallies: Sequence[npt.NDArray[Any]], own: Sequence[tuple[float, float]], sizes: Sequence[int]
    ) -> Mapping[str, Floats]:
        """What all that comes to, by name and client; `sizes` are the numbers of own samples."""

    @abstractmethod
    def together(self, parts: Sequence[tuple[Tensor, float]]) -> Tensor:
        """The output of a mixture of models, each with its weight."""


@dataclass(frozen=True)
class Classes(Targets):
    """Class labels: outputs are logits."""

    def risk(self, out: Tensor, y: Tensor) -> float:
        """How often the largest logit is the wrong one's."""
        return float((out.argmax(1) != y).double().mean())

    def said(self, out: Tensor, y: Tensor) -> npt.NDArray[Any]:
        """The labels."""
        return out.argmax(1).numpy()

    def own(self, out: Tensor, y: Tensor) -> tuple[float, float]:
        """(number right, mean clipped cross-entropy)."""
        return self.right(out, y), float(clipped_ce(out, y).mean())

    def right(self, out: Tensor, y: Tensor) -> int:
        """Where the largest logit is the true class's."""
        return int((out.argmax(1) == y).sum())

    def tally(self, out: Tensor, y: Tensor) -> npt.NDArray[Any]:
        """Of every class, how often it is predicted rightly, is true, and is predicted: a word can be a class, too."""
        truth, predicted = y.numpy(), out.argmax(1).numpy()
        counted = (truth[truth == predicted], truth, predicted)
        return np.stack([np.bincount(labels, minlength=self.outputs) for labels in counted])

    def measures(
        self, tallies: Sequence[npt.NDArray[Any]], own: Sequence[tuple[float, float]], sizes: Sequence[int]
    ) -> Mapping[str, Floats]:
        """Accuracy and macro-F1 on test samples; accuracy and clipped cross-entropy on one's own."""
        return {
            "accuracy": np.array([right.sum() / truth.sum() for right, truth, _ in tallies]),
            "f1": np.array([macro_f1(*tally) for tally in tallies]),
            "client": np.array([right for right, _ in own]) / np.array(sizes),
            "ce": np.array([ce for _, ce in own]),
        }

    def together(self, parts: Sequence[tuple[Tensor, float]]) -> Tensor:
        """Logarithms of the mixture's probabilities."""
        mixture: Tensor | float = 0.0
        for out, weight in parts:
            mixture = mixture + weight * out.softmax(1)
        return torch.as_tensor(mixture).clamp(min=1e-30).log()


@dataclass(frozen=True)
class Values(Targets):
    """Real numbers: outputs are predictions; an error is the mean over a sample's outputs, clipped for certificates."""

    clip: float

    def _errors(self, out: Tensor, y: Tensor) -> Tensor:
        """The mean absolute error of every sample; a model that has diverged errs as much as can be."""
        return (out.view(y.shape) - y).abs().double().mean(1).nan_to_num(nan=WORST).clamp(max=WORST)

    def _clipped(self, out: Tensor, y: Tensor) -> Tensor:
        return self._errors(out, y).clamp(max=self.clip) / self.clip

    def risk(self, out: Tensor, y: Tensor) -> float:
        """The mean clipped absolute error, in units of the clip."""
        return float(self._clipped(out, y).mean())

    def said(self, out: Tensor, y: Tensor) -> npt.NDArray[Any]:
        """The values that were predicted."""
        return out.view(y.shape).numpy()

    def own(self, out: Tensor, y: Tensor) -> tuple[float, float]:
        """(sum of absolute errors, mean clipped error)."""
        return float(self._errors(out, y).sum()), self.risk(out, y)

    def right(self, out: Tensor, y: Tensor) -> int:
        """Predictions less than half the clip away: better than the median would be on average."""
        return int((self._errors(out, y) < self.clip / 2).sum())

    def tally(self, out: Tensor, y: Tensor) -> npt.NDArray[Any]:
        """(samples, sum of absolute errors, of squared errors, of squared distances from the mean)."""
        squares = (out.view(y.shape) - y).double().square().mean(1).nan_to_num(nan=WORST).clamp(max=WORST)
        wide = y.double()
        around = (wide - wide.mean(0)).square().mean(1)
        return np.array([len(y), *(float(part.sum()) for part in (self._errors(out, y), squares, around))])

    def measures(
        self, tallies: Sequence[npt.NDArray[Any]], own: Sequence[tuple[float, float]], sizes: Sequence[int]
    ) -> Mapping[str, Floats]:
        """Errors and R2 on test samples, errors on one's own."""
        count, absolute, squared, around = np.stack(tallies).T
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = np.where(around > 0, 1 - squared / around, np.nan)
        return {
            "mae": absolute / count,
            "rmse": np.sqrt(squared / count),
            "r2": explained,
            "client": np.array([total for total, _ in own]) / np.array(sizes),
            "clipped": np.array([clipped for _, clipped in own]),
        }

    def together(self, parts: Sequence[tuple[Tensor, float]]) -> Tensor:
        """The weighted mean of the predictions."""
        mixture: Tensor | float = 0.0
        for out, weight in parts:
            mixture = mixture + weight * out
        return torch.as_tensor(mixture)


def targets_of(outputs: int, clip: float | None, own: OwnLoss | None = None) -> Targets:
    """Classes, or values whose errors are clipped; risks by a loss of the user's own where there is one."""
    return Classes(outputs, own_loss=own) if clip is None else Values(outputs, clip, own_loss=own)


def macro_f1(right: Counts, truth: Counts, predicted: Counts) -> float:
    """Mean F1 over all classes; a class never seen nor predicted counts 0."""
    seen = truth + predicted
    return float(np.mean(np.divide(2 * right, seen, out=np.zeros(len(right)), where=seen > 0)))
