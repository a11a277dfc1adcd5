"""What a decision and its exchange cost on the wire, by kind.

Encodings (method.md, 2.14): inputs as stored (uint8 pixels), labels 1 byte, latents and models float32, scalars 4
bytes. Two model counts are kept: *merged* into the receiver, and *transferred*, which includes models that were
moved only to be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..selection import Outcome

__all__ = ["Sizes", "Traffic", "account"]

SCALAR = 4


@dataclass(frozen=True)
class Sizes:
    """Bytes of the things that move."""

    anchor_input: int
    shared_block: int
    full_model: int
    answers: Mapping[str, int]  # per anchor, by kind of probe
    reads: Mapping[str, int] = field(default_factory=dict)  # by what is read; anything else is a scalar

    @classmethod
    def of(cls, *, input_bytes: int, classes: int, latent: int, shared_size: int, local_size: int, last: int) -> Sizes:
        """Sizes of one model and data set."""
        return cls(
            anchor_input=input_bytes,
            shared_block=4 * shared_size,
            full_model=4 * (shared_size + local_size),
            answers={"labels": 1 if classes <= 256 else 2, "latents": 4 * latent, "probs": 4 * classes},
            reads={"head": 4 * local_size, "last-layer": 4 * last},
        )


@dataclass(frozen=True)
class Traffic:
    """One client-round's bytes by kind and models by purpose."""

    probe_inputs: int = 0
    probe_answers: int = 0
    models: int = 0
    control: int = 0
    merged: int = 0
    transferred: int = 0

    @property
    def total(self) -> int:
        """All bytes."""
        return self.probe_inputs + self.probe_answers + self.models + self.control


def account(outcome: Outcome, asked: Mapping[str, int], sizes: Sizes) -> Traffic:
    """The traffic of one outcome; `asked` counts evaluations by kind of probe.

    A model that was inspected and is then merged moves once. Inspected models move whole, head included; a pulled
    one moves its shared block.
    """
    inspected = set(outcome.inspected)
    pulled = [p for p in outcome.peers if p not in inspected]
    evaluations = sum(asked.values())
    return Traffic(
        probe_inputs=evaluations * sizes.anchor_input,
        probe_answers=sum(n * sizes.answers[kind] for kind, n in asked.items()),
        models=len(inspected) * sizes.full_model + len(pulled) * sizes.shared_block,
        control=sum(n * sizes.reads.get(what, SCALAR) for what, n in outcome.reads.items()),
        merged=len(outcome.peers),
        transferred=len(inspected) + len(pulled),
    )
