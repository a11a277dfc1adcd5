"""Your own data: a function that returns training inputs and labels, test inputs and labels.

Inputs are uint8 images (samples, channels, height, width), which are scaled to [0, 1], or arrays of any shape (floats,
tokens as whole numbers, a dictionary of several), which are used as they are. Targets are whole numbers from 0 for
classes, or floats for regression. Dealing the training part out to the clients, and holding
anchors and evaluation samples back, is sagefl's business; where the data say whose each training sample is, a fifth
array tells, and `data.partition = "owners"` makes every owner a client.
"""

import numpy as np


def sensors() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Twelve readings, four kinds of event; made up. Replace it by reading your own files."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(4, 12))
    event = rng.integers(4, size=2400)
    readings = (centres[event] + rng.normal(size=(2400, 12))).astype(np.float32)
    return readings[:2000], event[:2000], readings[2000:], event[2000:]


def stations() -> tuple[np.ndarray, ...]:
    """The same readings, taken at ten stations, each of which sees mostly one kind of event."""
    x_train, y_train, x_test, y_test = sensors()
    rng = np.random.default_rng(4)
    habit = rng.integers(4, size=10)
    likely = np.where(habit[None, :] == y_train[:, None], 10.0, 1.0)
    station = [rng.choice(10, p=row / row.sum()) for row in likely]
    return x_train, y_train, x_test, y_test, np.array([f"station {s}" for s in station])


if __name__ == "__main__":
    # The same as a file, for `--dataset sensors.npz`.
    x_train, y_train, x_test, y_test = sensors()
    np.savez_compressed("sensors.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    print(f"sensors.npz: {len(x_train)} training and {len(x_test)} test samples of shape {x_train.shape[1:]}")
