"""A loss for certificates: to miss a fault (class 1) costs five times as much as a false alarm."""

import numpy as np


def cost(predicted, truth):
    """A number in [0, 5] for every sample."""
    return np.where(predicted == truth, 0.0, np.where(truth == 1, 5.0, 1.0))
