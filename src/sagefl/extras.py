"""What does not come with the core: which extra brings a package, and how an extra is had."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence

__all__ = ["EXTRAS", "how_to_install", "lacking"]

EXTRAS: Mapping[str, Sequence[str]] = {
    "sim": ("torch", "networkx", "polars", "safetensors", "pydantic", "tomli_w", "filelock"),
    "node": ("grpc", "google", "cryptography", "prometheus_client"),
    "view": ("starlette", "uvicorn", "plotly"),
    "study": ("matplotlib",),
    "ray": ("ray",),
    "cifar": ("PIL",),
    "hf": ("datasets",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
}
"""The packages that each extra adds, by the names under which they are imported."""


def how_to_install(extra: str) -> str:
    """The command that adds an extra. There is no release on an index yet; the constraints pin what fits together."""
    return f"in the checkout, pip install -c constraints.txt -e '.[{extra}]'"


def lacking(error: ModuleNotFoundError) -> str | None:
    """The extra that would have brought the module; None where it was not sagefl that wanted it, or nothing brings it.

    A module of the user's, or a library, that misses one of its own must not be told to install an extra of sagefl.
    """
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    packages = [name.partition(".")[0] for name in modules]
    wanting = [name for name in packages if name not in ("importlib", "_frozen_importlib")]
    if not wanting or wanting[-1] != "sagefl":
        return None
    package = (error.name or "").partition(".")[0]
    return next((extra for extra, brought in EXTRAS.items() if package in brought), None)
