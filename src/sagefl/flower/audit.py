"""What a guarded client leaves on disk: the run directory of any other run, with this client and its server in it.

Client 0 is the client, peer 1 the server. Every verdict is a row of `decisions.parquet`: `reason` is `home` where the
model was refused and `only` where it was accepted, `risks` has the loss of the received model on the anchors,
`advantage` what it is ahead of the accepted one, `against` and `threshold` the log-wealth and what it takes to refuse.
In `metrics.parquet`, `client` is one minus the mean loss, on the anchors, of the model that the client went on with.
Flower gives a client a process that may end after every round, so the tables are read and written anew every time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.app import Context

from ..runs.columns import Decided
from ..runs.config import RunConfig
from ..runs.recording import Recorder
from ..runs.rundir import RunDirectory
from ..selection.guard import Guard
from ..selection.outcome import Traffic
from ..selection.selector import Hood
from .mod import AuditEntry

CLIENT, SERVER = 0, 1
ROUNDS = "num-server-rounds"  # where Flower's templates keep it


def enter(place: Path, context: Context, guard: Guard, rounds: int | None, judged: AuditEntry) -> None:
    """Add a client's verdict of one round to its record below `place`."""
    part = context.node_config.get("partition-id")
    directory = RunDirectory(place / (f"node-{context.node_id}" if part is None else f"client-{part}"))
    last = rounds or int(context.run_config.get(ROUNDS, 0))
    directory.prepare(_config(guard, max(last, 1)))
    with directory.locked():
        recorder, row = Recorder(directory), _row(judged)
        recorder.keep_before(judged.round, clients=1)
        recorder.decisions.add([row])
        good = 1 - sum(judged.kept) / len(judged.kept) if judged.kept else None
        recorder.enter([row], None, [CLIENT], round=judged.round, client=good, weak=good)
        recorder.write()
        if judged.round + 1 == last:
            directory.finish({"method": "guard", **recorder.summary()})


def _row(judged: AuditEntry) -> dict[str, Any]:
    hood = Hood((SERVER,), judged.verdict.stage.anchors, judged.round)
    outcome = judged.verdict.outcome(SERVER)
    return Decided(judged.round, CLIENT, hood, outcome, Traffic(models=judged.size, transferred=1)).row()


def _config(guard: Guard, rounds: int) -> RunConfig:
    usual, chosen = Guard(), {"tolerance": guard.tolerance, "delta": guard.delta}
    return RunConfig.parse(
        {
            "clients": 2,
            "rounds": rounds,
            "data": {"dataset": "flower", "partition": "owners"},
            "topology": {"kind": "complete"},
            "method": {"id": "guard", "options": {k: v for k, v in chosen.items() if v != getattr(usual, k)}},
            "evaluation": {"losses": "none"},
        }
    )
