"""The picture of `docs/proof.md`, from runs of what that page proves: `python tools/proof_picture.py`.

Left the page's own example: three peers that are wrong on 20, 20 and 8 of a pool of 40 anchors. Right peers of whom
none is better, for many receivers: how rarely capital reaches the line.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagefl.selection import State
from sagefl.selection.pool import Capital, differences, log_e_value

TARGET = Path(__file__).parent.parent / "docs" / "images" / "proof-wealth.svg"
DELTA, POOL, ASKED, PEERS = 0.1, 40, 8, ("ada", "bob", "cyd")
ROUNDS, LONG, RECEIVERS = 12, 60, 200
NAMED = {"ada": "ada, bob", "cyd": "cyd"}  # two lie close together
LOW, HIGH = -8.0, 13.0  # log-capital that is drawn; what sinks below stays at the edge
TOP, BASE, LEFT = 62, 286, (46, 432)
WIDE = 290
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 340" role="img" aria-label="{label}" '
    'font-family="system-ui, sans-serif" font-size="13">'
)
STYLE = """  <style>
    text { fill: #1d2733 } .small { font-size: 11.5px; fill: #4a5868 }
    .middle { text-anchor: middle } .end { text-anchor: end }
    path { fill: none; stroke: #51657d; stroke-width: 1.6 } .grid { stroke: #b6c2cf; stroke-width: .7 }
    .line { stroke: #b3541e; stroke-dasharray: 6 4 } .lost { stroke-width: .8; opacity: .35 }
    .proven { stroke: #3f7045; stroke-width: 2.6 } .false { stroke: #b3541e; stroke-width: 1.8 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e8eef5 } .small { fill: #b3c0cf } path { stroke: #8fa3ba } .grid { stroke: #4d5a68 }
      .line, .false { stroke: #e59a6a } .proven { stroke: #86b98c }
    }
  </style>"""


def example() -> npt.NDArray[np.float64]:
    """Log-capital that each peer is better after each round, from 0; the block on the page, drawn."""
    rng = np.random.default_rng(1)
    return followed(pool_of(rng, (20, 20, 8)), rng, ROUNDS)


def receivers() -> npt.NDArray[np.float64]:
    """The same where all three err on 14 anchors each: of every receiver, the highest of its three."""
    found = []
    for number in range(RECEIVERS):
        rng = np.random.default_rng([1, number])
        found.append(followed(pool_of(rng, (14, 14, 14)), rng, LONG).max(axis=1))
    return np.array(found)


def pool_of(rng: np.random.Generator, wrong: Iterable[int]) -> npt.NDArray[np.float64]:
    """Who is wrong on which anchors of the pool."""
    losses = np.zeros((len(PEERS), POOL))
    for row, errors in zip(losses, wrong, strict=True):
        row[rng.permutation(POOL)[:errors]] = 1
    return losses


def followed(losses: npt.NDArray[np.float64], rng: np.random.Generator, rounds: int) -> npt.NDArray[np.float64]:
    """Log-capital [round, peer] of bets that a peer is better than a draw from the others."""
    seen = [np.zeros(len(PEERS))]
    state: State = {}
    for number in range(rounds):
        y = differences(losses[:, rng.permutation(POOL)[:ASKED]])
        capital = Capital.of(state, round=number, delta=DELTA, peers_ever=len(PEERS))
        capital = capital.bet(PEERS, log_e_value(y), log_e_value(-y))
        state = capital.to_state()
        seen.append(np.array([capital.held[peer].better for peer in PEERS]))
    return np.array(seen)


def picture() -> str:
    """The whole SVG."""
    needed = log(2 * len(PEERS) / DELTA)
    one, many = example(), receivers()
    first = int(np.argmax(one[:, 2] >= needed))
    ever = (many >= needed).any(axis=1)
    label = (
        f"Left: capital of the bets on three peers over {ROUNDS} rounds; that on the better one passes the line in "
        f"round {first}. Right: {RECEIVERS} receivers with nobody better, over {LONG} rounds; {ever.sum()} ever pass it"
    )
    parts = [HEAD.format(label=label), STYLE]
    parts += panel(0, "One peer is better than the others", ROUNDS, 2, needed)
    for name, line in zip(PEERS, one.T, strict=True):
        parts.append(curve(0, line, ROUNDS, "proven" if line.max() >= needed else ""))
        at = int(np.argmax(line < LOW)) or ROUNDS
        if name in NAMED:
            x, y = place(0, at, line[at], ROUNDS)
            parts.append(text(x + 6, y - 4 if at < ROUNDS else y + 4, NAMED[name]))
    x, y = place(0, first, needed, ROUNDS)
    parts.append(text(x - 6, y - 34, f"proven in round {first}", "end"))
    parts.append(f'  <path d="M{x - 30:.0f} {y - 28:.0f}L{x - 4:.0f} {y - 9:.0f}"/>')
    parts += panel(1, f"Nobody is better: {RECEIVERS} receivers", LONG, 15, needed)
    parts += [curve(1, line, LONG, "lost") for line in many[~ever]]
    parts += [curve(1, line, LONG, "false") for line in many[ever]]
    x, _ = place(1, LONG, 0, LONG)
    parts.append(text(x, TOP + 4, f"{ever.sum()} of {RECEIVERS} ever pass the line", "end"))
    parts.append(text(x, TOP + 20, f"promised: no more than {DELTA / 2 * RECEIVERS:.0f} on average", "small end"))
    return "\n".join([*parts, "</svg>", ""])


def panel(which: int, title: str, rounds: int, every: int, needed: float) -> list[str]:
    """Title, axes, and the line that has to be reached."""
    left, right = LEFT[which], LEFT[which] + WIDE
    made = [text(left, 24, title), text(left, 44, "log-capital that a peer is better", "small")]
    for value in (-5, 0, 5, 10):
        _, y = place(which, 0, value, rounds)
        made += [
            f'  <path class="grid" d="M{left} {y:.1f}H{right}"/>',
            text(left - 6, y + 4, str(value).replace("-", "&#8722;"), "small end"),
        ]
    for number in range(0, rounds + 1, every):
        x, _ = place(which, number, 0, rounds)
        made.append(text(x, BASE + 18, str(number), "small middle"))
    made.append(text((left + right) / 2, BASE + 38, "round", "small middle"))
    _, y = place(which, 0, needed, rounds)
    made.append(f'  <path class="line" d="M{left} {y:.1f}H{right}"/>')
    made.append(text(left + 4, y - 5, "needed: log(2d/δ)", "small"))
    return made


def place(which: int, number: float, value: float, rounds: int) -> tuple[float, float]:
    """Where a round and a value are drawn."""
    share = (max(value, LOW) - LOW) / (HIGH - LOW)
    return LEFT[which] + WIDE * number / rounds, BASE - share * (BASE - TOP)


def curve(which: int, values: npt.NDArray[np.float64], rounds: int, kind: str) -> str:
    """One line over the rounds, to where it leaves the picture."""
    points = [place(which, number, value, rounds) for number, value in enumerate(values)]
    kept = points[:1] + [after for before, after in pairwise(points) if before[1] < BASE or after[1] < BASE]
    return f'  <path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in kept) + '"/>'


def text(x: float, y: float, said: str, kind: str = "") -> str:
    """A line of text."""
    return f'  <text class="{kind}" x="{x:.0f}" y="{y:.0f}">{said}</text>'


def main() -> None:
    TARGET.write_text(picture(), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
