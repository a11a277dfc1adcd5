"""A plain PyTorch loop: eight clients train, and after every epoch each averages with a random other client."""

import random

import torch
from torch import nn

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


def main():
    torch.set_num_threads(1)  # small models: more threads only wait for each other
    torch.manual_seed(1)
    random.seed(1)
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, 16, generator=generator)
    models = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, CLASSES)) for _ in range(CLIENTS)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.Adam(model.parameters(), lr=3e-3) for model in models]
    train_sets = [client_data(k, 200, centres, generator) for k in range(CLIENTS)]
    test_sets = [client_data(k, 500, centres, generator) for k in range(CLIENTS)]

    for _ in range(ROUNDS):
        for model, optimizer, (x, y) in zip(models, optimizers, train_sets, strict=True):
            train(model, optimizer, x, y)
        snapshots = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, CLASSES)) for _ in models]
        for snapshot, model in zip(snapshots, models, strict=True):
            snapshot.load_state_dict(model.state_dict())
        for k, model in enumerate(models):
            peers = [p for p in range(CLIENTS) if p != k]
            average(model, snapshots[random.choice(peers)])

    errors = [error(model, *test).mean().item() for model, test in zip(models, test_sets, strict=True)]
    print(f"mean error on own data after {ROUNDS} rounds: {sum(errors) / CLIENTS:.3f}")


if __name__ == "__main__":
    main()
