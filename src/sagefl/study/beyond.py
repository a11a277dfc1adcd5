"""Beyond the paper on trained models: can a receiver that asks first beat gossip, and at what price?

What is run, what is compared and which comparison counts was written down here before anything was run. There is one
primary comparison: trimmed gossip with representation probes (`sage-e-trim`, kind = latents, all the evidence it
can have: lambda = 0) against random gossip on the mean of global and Client accuracy after mixing. If it does not beat
gossip with all the evidence, no cheaper variant of it is expected to. Everything else is secondary and corrected for
multiplicity by Holm's method; the three numbers of every arm against gossip form one family, that of the plan: arms
that are not run yet count as having found nothing.

What that experiment suggested is asked again on seeds that nobody has looked at (`CONFIRMATION`): the two arms that
came out ahead of gossip, each against gossip on the same mean, corrected for being two. It was written down when the
arms at lambda = 0 were complete and before any of its cells was run.

Two things came later. `sage-os` at lambda = 0 joined the arms before any of its cells was run. What betting rules do
at lambda = 0 was corrected after a first run of the primary comparison, which is kept in
`results/beyond-laptop/with-stop`.

How arms are compared is in `trials`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .design import Design
from .matrix import preset_of
from .results import Configuration
from .trial_report import draw_price, write_account
from .trials import REFERENCE, Arm, Trial, plan_trial

__all__ = ["CONFIRMATION", "EXPERIMENT", "design"]

_GOSSIP = Arm(REFERENCE, "rg")
_TRIM_LATENTS = Arm("trim, latents, lambda 0", "sage-e-trim:kind=latents:probe_cost=0")
_LATENTS_CE = Arm("sage-e, latents ce, lambda 0", "sage-e:kind=latents:loss=ce:probe_cost=0")
_TRIM_LABELS = Arm("trim, labels, lambda 0", "sage-e-trim:probe_cost=0")
_ARMS = (
    _GOSSIP,
    _TRIM_LATENTS,
    _LATENTS_CE,
    Arm("sage-e, labels, lambda 0", "sage-e:probe_cost=0"),
    Arm("sage-e, latents, lambda 0", "sage-e:kind=latents:probe_cost=0"),
    Arm("uniform pick, latents, lambda 0", "sage-e:kind=latents:pick=uniform:probe_cost=0"),
    _TRIM_LABELS,
    Arm("sage-e, labels", "sage-e"),
    Arm("sage-e, latents ce", "sage-e:kind=latents:loss=ce"),
    Arm("sage-e, latents", "sage-e:kind=latents"),
    Arm("aq-128", "aq-128"),
    Arm("sage-os", "sage-os"),
    Arm("sage-vanilla", "sage-vanilla"),
    Arm("sage-os, lambda 0", "sage-os:probe_cost=0"),
    Arm("trim, latents", "sage-e-trim:kind=latents"),
    Arm("uniform pick, latents", "sage-e:kind=latents:pick=uniform"),
    Arm("trim, labels", "sage-e-trim"),
)
_ER, _BA = Configuration("fmnist", "er", 0.1), Configuration("fmnist", "ba", 0.3)
EXPERIMENT = Trial("experiment", _ARMS, {_ER: (1, 2, 3), _BA: (1, 2)}, (_TRIM_LATENTS.name,))
CONFIRMATION = Trial(
    "confirmation",
    (_GOSSIP, _TRIM_LABELS, _LATENTS_CE),
    {_ER: (4, 5, 6, 7, 8), _BA: (9, 10, 11)},  # a seed in one world only: replications share nothing
    (_TRIM_LABELS.name, _LATENTS_CE.name),
)


def design(
    preset: str = "laptop",
    trial: Trial = EXPERIMENT,
    *,
    arms: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Design:
    """The experiment, or its confirmation, at a preset's scale; `arms` takes only the first so many."""
    suffix = "" if trial is EXPERIMENT else f"-{trial.name}"
    return Design(
        f"beyond-{preset}{suffix}",
        f"Beyond the paper on trained models: {trial.name}",
        plan_trial(preset, trial, arms=arms, overrides=overrides),
        charts=(draw_price,),
        trial=trial,
        small=preset_of(preset).small,
        keeps=True,
        write=write_account,
    )
