"""Without Flower its guard says what to install."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="flwr is installed here")
def test_without_flower_it_is_said_how_to_get_it() -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r"the guard is for Flower: in the checkout, pip install -e .*\[flower\]"
    ):
        importlib.import_module("sagefl.flower")
