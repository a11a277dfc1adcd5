"""Whole models instead of shared blocks: heads move and merge, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from ..learning.tasks import MixBlocks, Tasks
from ..selection.outcome import Outcome, Traffic
from ..selection.scoring import Scoring
from .accounting import Sizes, account
from .layer import ExchangeLayer
from .mixing import Mix


class WholeModels(ExchangeLayer):
    """All parameters are mixed as decided."""

    beyond: ClassVar[str] = "averages whole models (it would work with its option models=shared)"

    def mix(self, tasks: Tasks, round: int, mixes: Mapping[int, Mix]) -> None:
        """Carry the mixing out."""
        tasks.map([MixBlocks(client, round, mix.own, mix.pulls, whole=True) for client, mix in mixes.items()])

    def traffic(self, client: int, outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
        """Every model that moves is a whole one."""
        plain = account(outcome, asked, sizes)
        return replace(plain, models=plain.transferred * sizes.full_model)
