"""From decisions to models that move and merge: the mixing of a round, and what it costs in bytes.

Nothing here chooses a peer or trains a model.
"""

from ..selection.outcome import Traffic
from .accounting import Sizes, account
from .layer import ExchangeLayer
from .mixing import Mix, delivered, resolve

__all__ = ["ExchangeLayer", "Mix", "Sizes", "Traffic", "account", "delivered", "resolve"]
