"""Your own data and model on a node: point the config at them as module:object. This file is all there is to it.

`data` returns four arrays: training inputs and labels, test inputs and labels. What the node holds out as anchors and
for evaluation it takes from the training part itself. Inputs are uint8 images (samples, channels, height, width) or
float32 arrays, which are used as they are: scale them yourself. All nodes must agree on shape and number of classes.

`model` is called with the shape of one input and the number of classes and returns a torch module. `shared` names what
is exchanged; everything else (here the head) never leaves the node. With `latent` and `head` it can be asked for
representations as well as labels, and then what a peer sends is checked against what it answered.
"""

import numpy as np
from torch import Tensor, nn


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Twelve measurements of 900 patients, three diagnoses. Replace by reading your own files."""
    rng = np.random.default_rng(7)
    diagnosis = rng.integers(3, size=900)
    centres = np.random.default_rng(0).normal(size=(3, 12))
    measured = (centres[diagnosis] + rng.normal(size=(900, 12))).astype(np.float32)
    return measured[:700], diagnosis[:700], measured[700:], diagnosis[700:]


class Diagnosis(nn.Module):
    """A body that is shared and a head that is not."""

    shared = ("body",)

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def latent(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))
