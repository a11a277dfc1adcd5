"""Private answers in a run: each peer's layer, and what clients have given away.

The noise of an answer is a function of (seed, peer, round of the snapshot, sample), so it is memoised by construction:
whoever asks a peer about the same sample and snapshot again, through whichever engine or after a resume, is told the
same. (A node goes by the input instead, so there copies of a sample get one answer; `preflight` warns of them.) Only
labels can be perturbed; a method that probes for anything else is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..exchange.mixing import client_of
from ..selection import Decision
from ..selection.private import PrivacyAccount, PrivateAnswers, RandomisedResponse


def peer_answers(mechanism: RandomisedResponse, seed: int, peer: int) -> PrivateAnswers:
    """One simulated peer's layer; in a network its secret would be random."""
    return PrivateAnswers(mechanism, hashlib.sha256(f"sagefl simulated peer {seed} {peer}".encode()).digest())


class PrivacyLedger:
    """The accounts of all clients as answerers.

    A snapshot that is asked about in several rounds (delayed links) is counted in each, which errs on the safe side.
    """

    def __init__(self, epsilon: float, clients: int) -> None:
        self.epsilon = epsilon
        self.accounts = [PrivacyAccount(epsilon) for _ in range(clients)]

    def enter(self, decisions: Mapping[int, Decision]) -> None:
        """Enter the answers that finished decisions were given."""
        for receiver, decision in decisions.items():
            for book in decision.ledger.books.values():
                for peer, count in zip(decision.ledger.peers, np.count_nonzero(~np.isnan(book), axis=1), strict=True):
                    if count:
                        self.accounts[client_of(peer)].answered(receiver, int(count))

    def given(self) -> dict[str, float]:
        """End a round; returns what the worst-off client has given away.

        To all receivers together, as if they told each other everything, and (pair) to a single one of them.
        """
        worst = {name: max(a.report()[name] for a in self.accounts) for name in _COLUMNS}
        for account in self.accounts:
            account.next_round()
        return {"epsilon_answer": self.epsilon} | {column: worst[name] for name, column in _COLUMNS.items()}

    def state(self) -> list[Any]:
        """What a checkpoint keeps: each client's answers by receiver."""
        return [{str(receiver): count for receiver, count in a.answers.items()} for a in self.accounts]

    def load(self, state: list[Any]) -> None:
        """Restore what `state` returned."""
        for account, answers in zip(self.accounts, state, strict=True):
            account.answers = {int(receiver): int(count) for receiver, count in answers.items()}


_COLUMNS = {
    "round_total": "epsilon_round",
    "round_worst": "epsilon_round_pair",
    "total": "epsilon_total",
    "worst": "epsilon_total_pair",
}
