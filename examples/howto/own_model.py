"""Your own model: a torch module that is called with the shape of one input and the number of classes.

`shared` names the parameters that are exchanged; the rest (here the head) never leaves the client. With `latent` and
`head` neighbours can be asked for representations as well as labels. Without `loss` the loss is cross-entropy.
"""

from torch import Tensor, nn


class Trunk(nn.Module):
    """A trunk that is shared and a head that is not."""

    shared = ("trunk",)

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 24) -> None:
        super().__init__()
        inputs = 1
        for side in shape:
            inputs *= side
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def latent(self, x: Tensor) -> Tensor:
        """What mixing imports."""
        return self.trunk(x)

    def forward(self, x: Tensor) -> Tensor:
        """Class logits."""
        return self.head(self.trunk(x))
