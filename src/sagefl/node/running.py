"""One node as a process: signals, threads, gRPC's own log, and the exit status."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import torch

from ..learning.memory import keep_freed_memory
from ..signals import stoppable
from .config import NodeConfig
from .corelog import watch_core_log
from .errors import need_posix
from .loop import Node
from .status import FINISHED, FORCED, INTERRUPTED


def run_node(path: Path, *, insecure: bool = False, tethered: bool = False, device: str | None = None) -> int:
    """Run the node a config file describes until it is finished or stopped; returns the exit status.

    `device`: where it computes instead of where the config says.
    `tethered`: stop when standard input closes, so that a swarm's nodes do not outlive it.
    """
    need_posix()
    config = NodeConfig.read(path)
    if device is not None:
        config = config.model_copy(update={"device": device})
    here = str(path.resolve().parent)
    if here not in sys.path:  # a user's data and model modules may be next to the config
        sys.path.insert(0, here)
    torch.set_num_threads(config.threads)
    keep_freed_memory()
    node = Node(config, insecure=insecure, echo=sys.stdout)
    if tethered:
        threading.Thread(target=_wait_for_end_of_input, args=(node,), name="tether", daemon=True).start()
    with stoppable(node.stop, lambda: os._exit(FORCED)), watch_core_log(node.journal):
        summary = node.run()
    return INTERRUPTED if summary is None else FINISHED


def _wait_for_end_of_input(node: Node) -> None:
    while os.read(0, 4096):
        pass
    node.stop()
