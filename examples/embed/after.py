"""The same loop with peer selection: each client asks before it downloads, and pulls what the certificate allows."""

import torch
from torch import nn

from sagefl import SageE, drive

CLIENTS, CLASSES, ROUNDS = 8, 6, 12


def client_data(kind, count, centres, generator):
    """Half of the clients see classes 0 to 2, the others 3 to 5; everything is made up."""
    y = torch.randint(0, CLASSES // 2, (count,), generator=generator) + (kind % 2) * (CLASSES // 2)
    return centres[y] + torch.randn(count, 16, generator=generator), y


def train(model, optimizer, x, y):
    for rows in torch.randperm(len(x)).split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()


@torch.no_grad()
def error(model, x, y):
    return (model(x).argmax(1) != y).float()


@torch.no_grad()
def average(mine, theirs):
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        a.lerp_(b, 0.5)


def choose(k, round_, peers, snapshots, anchors):
    """Whom client k pulls. `ask` stands for the network: inputs go out, labels come back, losses are taken at home."""

    order = torch.randperm(len(anchors[0]))  # a new one every round, fixed before anybody is asked
    x, y = anchors[0][order], anchors[1][order]

    def ask(peer, at):
        return error(snapshots[peer], x[at], y[at]).numpy()

    return drive(SageE(probe_cost=5e-4).begin(peers, anchors=len(x), seed=(1, round_, k)), ask)


def main():
    torch.set_num_threads(1)  # small models: more threads only wait for each other
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, 16, generator=generator)
    models = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, CLASSES)) for _ in range(CLIENTS)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.Adam(model.parameters(), lr=3e-3) for model in models]
    train_sets = [client_data(k, 200, centres, generator) for k in range(CLIENTS)]
    anchor_sets = [client_data(k, 64, centres, generator) for k in range(CLIENTS)]  # held out from training
    test_sets = [client_data(k, 500, centres, generator) for k in range(CLIENTS)]

    outcomes = []
    for round_ in range(ROUNDS):
        for model, optimizer, (x, y) in zip(models, optimizers, train_sets, strict=True):
            train(model, optimizer, x, y)
        snapshots = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, CLASSES)) for _ in models]
        for snapshot, model in zip(snapshots, models, strict=True):
            snapshot.load_state_dict(model.state_dict())
        for k, model in enumerate(models):
            peers = [p for p in range(CLIENTS) if p != k]
            outcomes.append(choose(k, round_, peers, snapshots, anchor_sets[k]))
            average(model, snapshots[outcomes[-1].peers[0]])

    errors = [error(model, *test).mean().item() for model, test in zip(models, test_sets, strict=True)]
    print(f"mean error on own data after {ROUNDS} rounds: {sum(errors) / CLIENTS:.3f}")
    certified = sum(outcome.reason.value == "certified" for outcome in outcomes)
    asked = sum(outcome.evaluations for outcome in outcomes) / len(outcomes)
    print(f"{certified} of {len(outcomes)} decisions certified, {asked:.0f} evaluations each on average")


if __name__ == "__main__":
    main()
