"""What lambda and delta do to one recorded neighbourhood: nothing is trained, nothing is sent.

python examples/howto/choose_lambda.py [losses.csv]
"""

import sys
from pathlib import Path

from sagefl import SageOS, replay
from sagefl.selection.recorded import read_losses
from sagefl.selection.theory import probe_price

RECORDED = Path(__file__).parent.parent / "losses.csv"


def main(path: Path) -> None:
    """A line per pair: how the decision ends and what it costs."""
    recorded = read_losses(path)
    price = probe_price(input_bytes=784, answer_bytes=1, model_bytes=864_000, risk_per_model=0.05)
    print(f"lambda for 784-byte inputs and a model of 864 kB, if one transfer is worth 5 points: {price:.1e}")
    print("lambda   delta  ends with   evaluations  their price")
    for probe_cost in (price, 5e-4, 2e-3, 8e-3):
        for delta in (0.01, 0.1, 0.3):
            outcome = replay(SageOS(probe_cost=probe_cost, delta=delta), recorded.losses, peers=recorded.peers)
            spent = probe_cost * outcome.evaluations
            print(
                f"{probe_cost:<8.1g} {delta:<6g} {outcome.reason.value:<11} {outcome.evaluations:>11}  {spent:>11.3f}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED)
