from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from federation import Federation, tiny_arrays


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


@pytest.fixture
def config(federation: Federation) -> Callable[..., Path]:
    """A node's config as a file, with data on disk."""

    def write(name: str, known: tuple[str, ...], **settings: Any) -> Path:
        data = federation.home / "tiny.npz"
        if not data.exists():
            np.savez_compressed(data, **tiny_arrays(), classes=4)
        settings["data"] = {"dataset": str(data), **settings.get("data", {})}
        path = federation.home / f"{name}.toml"
        path.write_text(federation.config(name, known, **settings).to_toml())
        return path

    return write
