"""Arguments that make a run small."""

SMALL = [
    "--clients", "6", "--rounds", "3", "--eval-every", "2", "--max-batches", "1",
    "--set", "model.name=mlp", "--set", "evaluation.subset=50",
]  # fmt: skip
ONE = ["--engine", "sequential"]
