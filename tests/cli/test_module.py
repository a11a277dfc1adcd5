"""The command where its script is not on the path."""

from __future__ import annotations

import subprocess
import sys

from sagefl import __version__


def test_python_m_sagefl_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "sagefl", "--version"], capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout) == (0, f"sagefl {__version__}\n"), said.stderr


def test_a_command_spares_the_last_search_for_cycles() -> None:
    script = """
import atexit, gc
atexit.register(lambda: print("left to search:", len(gc.get_objects())))  # the first to register runs last
from sagefl.cli import app
app(["plan", "--degree", "6"])
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    left = int(said.stdout.rpartition("left to search: ")[2])
    assert left < 1000, said.stdout + said.stderr  # of some 50,000
