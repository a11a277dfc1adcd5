"""`python -m sagefl.node CONFIG`: how a swarm starts its nodes. Users call `sagefl node run`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import SageflError
from .running import run_node


def main() -> int:
    """Parse the arguments, run the node, and print what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m sagefl.node")
    parser.add_argument("config", type=Path)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--tethered", action="store_true")
    asked = parser.parse_args()
    try:
        return run_node(asked.config, insecure=asked.insecure, tethered=asked.tethered)
    except SageflError as error:
        print(f"sagefl: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
