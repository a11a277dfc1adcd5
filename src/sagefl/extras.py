"""Optional dependencies: which extra brings a package, and how to install it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence

EXTRAS: Mapping[str, Sequence[str]] = {
    "sim": ("torch", "networkx", "polars", "safetensors", "pydantic", "tomli_w", "filelock"),
    "node": ("grpc", "google", "cryptography", "prometheus_client"),
    "view": ("starlette", "uvicorn"),
    "study": ("matplotlib", "jinja2"),
    "ray": ("ray",),
    "flower": ("flwr",),
    "cifar": ("PIL",),
    "hf": ("datasets",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
}
"""The packages that each extra adds, by their import names."""


def how_to_install(extra: str) -> str:
    """The command that installs an extra, at versions that work together. There is no release on an index yet."""
    versions = "" if extra == "flower" else "-c constraints.txt "  # Flower chooses its own, older ones
    return f"in the checkout, pip install {versions}-e '.[{extra}]'"


def lacking(error: ModuleNotFoundError) -> str | None:
    """The extra that brings a missing module, or None if no extra does or sagefl did not import it.

    If a user's module or a library lacks something that it needs itself, an extra of sagefl would not help.
    """
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    packages = [name.partition(".")[0] for name in modules]
    importers = [name for name in packages if name not in ("importlib", "_frozen_importlib")]
    if not importers or importers[-1] != "sagefl":
        return None
    package = (error.name or "").partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if package in names), None)
