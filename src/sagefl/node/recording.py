"""What a node leaves on disk: the same run directory as a simulated run, with this node as its only client.

A few more columns say what a network adds: restarts, lost peers, bytes on the wire. A node does not stop when it cannot
write: it logs an event and tries again after the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from polars.exceptions import PolarsError
from safetensors import SafetensorError

from ..exchange import ExchangeLayer, Sizes, Traffic
from ..learning.population import Population
from ..runs import checkpoint
from ..runs.columns import Decided, Writer
from ..runs.files import RunError, explained
from ..runs.losses import Recorded, losses_path, write_losses
from ..runs.recording import Recorder
from ..runs.rundir import RunDirectory
from ..selection.private import RandomisedResponse
from .config import NodeConfig
from .deciding import ConsultationResult
from .journal import Journal


class NodeRecorder(Recorder):
    """One node's run directory."""

    def __init__(
        self, config: NodeConfig, mechanism: RandomisedResponse | None, journal: Journal, special: Mapping[Writer, bool]
    ) -> None:
        super().__init__(RunDirectory(Path(config.directory)), "node", *(name for name, has in special.items() if has))
        self.config, self.journal = config, journal
        self.run_config = config.run_config()
        self._classes = None if mechanism is None else mechanism.classes
        self._waiting: list[tuple[int, Recorded]] = []  # losses for which the disk had no room yet

    def prepare(self) -> None:
        """Create the directory unless it exists."""
        self.directory.prepare(self.run_config)

    def resume(self, population: Population, identity: str) -> tuple[int, dict[str, Any]]:
        """Fill the population from the newest good checkpoint; returns the first round to run and the states."""
        found, refused = checkpoint.latest(self.directory.path, identity)
        for why in refused:
            self.journal.event("refused-checkpoint", why=why)
        if found is None and refused:
            raise checkpoint.CheckpointError(
                "; ".join(refused) + ": no good checkpoint is left; give this node another directory"
            )
        if found is not None:
            checkpoint.restore(found, population)
        first = 0 if found is None else found.round
        self.keep_before(first, clients=1)
        return first, {} if found is None else found.states

    def attempt(self, what: str, write: Callable[[], None]) -> bool:
        """Try to write; a full or missing disk is logged as an event and returns False."""
        try:
            with explained(what):
                write()
        except (RunError, OSError, SafetensorError, PolarsError) as error:
            self.journal.event("write-failed", what=what, why=str(error))
            return False
        return True

    def checkpoint(
        self, round: int, population: Population, identity: str, states: dict[str, Any], first: Callable[[], None]
    ) -> bool:
        """Write what waits, `first`, the tables, and then a checkpoint that goes on with `round`; False if that failed.

        So whatever a checkpoint follows upon is on disk: nothing is lost with a crash, only done again.
        """

        def write() -> None:
            self._write_losses()
            first()
            self.write()
            checkpoint.save(self.directory.path, round, population, identity, states)

        return self.attempt(f"checkpoint of round {round}", write)

    def losses(self, round: int, result: ConsultationResult) -> None:
        """Keep the losses that a decision paid for; if it used several kinds of probe, those of the first."""
        if self.config.evaluation.losses == "none" or not result.losses:
            return
        record = Recorded.of(self.config.number, result.decision, *next(iter(result.losses.items())))
        self._waiting.append((round, record))
        self.attempt(f"losses of round {round}", self._write_losses)

    def _write_losses(self) -> None:
        while self._waiting:
            round, record = self._waiting[0]
            write_losses(losses_path(self.directory.path, round), [record], self._classes)
            del self._waiting[0]

    def forget_losses(self, first: int) -> None:
        """Remove the losses of rounds that will be run again."""
        for path in (self.directory.path / "losses").glob("round-*.safetensors"):
            if int(path.stem.split("-")[1]) >= first:
                path.unlink(missing_ok=True)

    def finish(self, restarts: int) -> dict[str, Any]:
        """Write the end result."""
        summary = {"method": self.config.method.id, **self.summary(), "restarts": restarts}

        def write() -> None:
            self.write()
            self.directory.finish(summary)

        self.attempt(f"results in {self.directory.path}", write)
        return summary


def traffic_of(client: int, result: ConsultationResult, exchange: ExchangeLayer, sizes: Sizes) -> Traffic:
    """What a decision and its exchange cost, counted as in the simulator; refused models were paid for too."""
    traffic = exchange.traffic(client, result.outcome, result.decision.ledger.asked, sizes)
    return replace(
        traffic,
        models=traffic.models + result.rejected_bytes,
        merged=traffic.merged if result.mix is not None else 0,
        transferred=traffic.transferred + result.rejected_models,
    )


def decision_row(round: int, client: int, result: ConsultationResult, traffic: Traffic, digest: str) -> dict[str, Any]:
    """The audit of one decision."""
    return Decided(round, client, result.decision.hood, result.outcome, traffic).row() | {
        "restarts": result.restarts,
        "lost": sorted(result.lost),
        "digest": digest,
        "rejected": result.rejected_models,
        "rolled_back": int(result.rolled_back),
    }
