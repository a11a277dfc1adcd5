"""The command where its script is not on the path."""

from __future__ import annotations

import subprocess
import sys

from sagefl import __version__


def test_python_m_sagefl_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "sagefl", "--version"], capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout) == (0, f"sagefl {__version__}\n"), said.stderr
