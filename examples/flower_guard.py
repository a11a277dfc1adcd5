"""A guard in a Flower federation: one broken update ruins the global model, and guarded clients do not follow it.

    pip install "flwr[simulation]" -e ".[flower]"
    python examples/flower_guard.py

Six clients learn to tell two classes apart; the server averages (Flower's own `FedAvg`). In round 4 a client has a
fault and sends back its model with its sign turned and a hundred times as large. The next global model is wrong about
almost everything. A client without a guard trains on from there; one with `sagefl.flower.guard` compares it with the
model it accepted before, on its own 60 anchors, and trains on from that one. The adapter is one line:
`mods=[guard(...)]`.
"""

from __future__ import annotations

import sys

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sagefl.flower import guard

CLIENTS, ROUNDS, FEATURES, FAULTY_ROUND = 6, 8, 20, 4


def samples(client: int, purpose: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's own data: what it trains on (0), its anchors (1), and what it is tested on at the end (2)."""
    rng = np.random.default_rng((client, purpose))
    x = rng.normal(size=(count, FEATURES))
    return x, (x @ np.linspace(-1, 1, FEATURES) + rng.normal(size=count) * 0.5 > 0).astype(float)


def wrong(model: ArrayRecord, client: int, purpose: int, count: int) -> np.ndarray:
    (weights,) = model.to_numpy_ndarrays()
    x, y = samples(client, purpose, count)
    return ((x @ weights > 0) != y).astype(float)


def on_anchors(model: ArrayRecord, context: Context) -> np.ndarray:
    """The loss of a model on each of this client's anchors: all that the guard needs to know."""
    return wrong(model, int(context.node_config["partition-id"]), 1, 60)


def client_app(*mods) -> ClientApp:
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """A few steps of logistic regression from whatever model the client is handed."""
        client = int(context.node_config["partition-id"])
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        error = float(wrong(message.content["arrays"], client, 2, 200).mean())
        x, y = samples(client, 0, 100)
        for _ in range(20):
            chances = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
            weights = weights - 0.5 * x.T @ (chances - y) / len(y)
        if client == 0 and message.content["config"]["server-round"] == FAULTY_ROUND:
            weights = -100 * weights
        counted = MetricRecord({"num-examples": len(y), "error": error})
        return Message(RecordDict({"arrays": ArrayRecord([weights]), "metrics": counted}), reply_to=message)

    return app


def server_app(errors: list[float]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        result = strategy.start(grid, ArrayRecord([np.zeros(FEATURES)]), num_rounds=ROUNDS)
        errors.extend(result.train_metrics_clientapp[round]["error"] for round in range(1, ROUNDS + 1))

    return app


def told(name: str, errors: list[float]) -> None:
    print(f"{name:>8}: {' '.join(f'{error:.2f}' for error in errors)}")


if __name__ == "__main__":
    from flwr.simulation import run_simulation

    print("mean error of the models that clients train on, round by round")
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs/guarded"
    for name, mods in {"plain": [], "guarded": [guard(on_anchors, audit=folder, rounds=ROUNDS)]}.items():
        errors: list[float] = []
        run_simulation(server_app(errors), client_app(*mods), num_supernodes=CLIENTS)
        told(name, errors)
