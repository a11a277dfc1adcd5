"""House prices in eight regions, made up: two kinds of region in which distance to the centre is worth opposite things.

Run it to write `houses.csv`: a row per house, with its region and its price.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

REGIONS = ("Ahr", "Bode", "Chiem", "Donau", "Eder", "Fulda", "Glan", "Havel")
HEAD = ("region", "rooms", "size", "age", "distance", "heating", "price")


def houses(each: int = 600) -> list[tuple[object, ...]]:
    """Rows of the table: in every other region people pay for being near the centre, elsewhere for being far away."""
    rng, rows = np.random.default_rng(1), []
    for number, region in enumerate(REGIONS):
        taste = -0.12 if number % 2 == 0 else 0.12
        for _ in range(each):
            rooms, age, distance = int(rng.integers(1, 7)), float(rng.uniform(0, 80)), float(rng.uniform(0, 20))
            size, heating = 22 * rooms + float(rng.normal(0, 8)), str(rng.choice(["gas", "oil", "heat pump"]))
            price = 2 + 0.03 * size - 0.005 * age + taste * (distance - 10) + 0.1 * (heating == "heat pump")
            price += rng.normal(0, 0.1)
            rows.append((region, rooms, round(size, 1), round(age, 1), round(distance, 2), heating, round(price, 3)))
    return rows


if __name__ == "__main__":
    table = houses()
    with Path("houses.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEAD, *table])
    print("houses.csv: 4800 houses in 8 regions, prices in hundred thousands")
    prices = np.array([row[-1] for row in table], dtype=float)
    print(f"always answering the mean price: MAE {np.abs(prices - prices.mean()).mean():.4f}, R2 0")
