"""What a decision and its exchange cost on the wire, by kind.

Encodings: inputs as stored (uint8 pixels), labels 1 byte, latents and models float32, scalars 4 bytes. Models are
counted twice: those *merged* into the receiver, and those *transferred*, which includes models that were moved only to
be inspected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..learning.layout import Layout
from ..learning.sketch import SKETCH
from ..selection.outcome import Outcome, Traffic
from ..selection.private import RandomisedResponse, perturbed
from ..selection.scoring import Outputs, Scoring

SCALAR = 4


@dataclass(frozen=True)
class Sizes:
    """Bytes of everything that can move."""

    anchor_input: int
    shared_block: int
    full_model: int
    outputs: Outputs  # what a model says about one input
    mechanism: RandomisedResponse | None = None  # by which peers perturb labels
    reads: Mapping[str, int] = field(default_factory=dict)  # by what is read; anything else is a scalar

    @classmethod
    def of(cls, layout: Layout, outputs: Outputs, input_bytes: int, mechanism: RandomisedResponse | None) -> Sizes:
        """Sizes of one model and data set."""
        return cls(
            anchor_input=input_bytes,
            shared_block=4 * layout.shared_size,
            full_model=4 * layout.full_size,
            outputs=outputs,
            mechanism=mechanism,
            reads={"head": 4 * layout.local_size, "last-layer": 4 * layout.last_layer_size, "sketch": 4 * SKETCH},
        )

    def answer(self, form: Scoring) -> int:
        """Bytes of one answer of this form."""
        return perturbed(self.outputs.form(form), self.mechanism).size(self.outputs)

    def price(self, form: Scoring) -> float:
        """Bytes of one evaluation, input and answer, as a share of a pulled model's."""
        return (self.anchor_input + self.answer(form)) / max(self.shared_block, 1)


def account(outcome: Outcome, asked: Mapping[Scoring, int], sizes: Sizes) -> Traffic:
    """The traffic of one outcome; `asked` counts evaluations by form of answer.

    A model that is inspected and then merged moves once. Inspected models move whole, head included; of a pulled model
    only the shared block moves.
    """
    inspected = set(outcome.inspected)
    pulled = [p for p in outcome.peers if p not in inspected]
    evaluations = sum(asked.values())
    return Traffic(
        probe_inputs=evaluations * sizes.anchor_input,
        probe_answers=sum(n * sizes.answer(form) for form, n in asked.items()),
        models=len(inspected) * sizes.full_model + len(pulled) * sizes.shared_block,
        control=sum(n * sizes.reads.get(what, SCALAR) for what, n in outcome.reads.items()),
        merged=len(outcome.peers),
        transferred=len(inspected) + len(pulled),
    )
