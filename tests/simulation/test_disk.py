"""What a finished run keeps: its tables, its losses, and one checkpoint from which it can go on."""

from __future__ import annotations

from pathlib import Path

from small_runs import config, simulate, world

OVERHEAD = 4096  # bytes of a file's head and of what a rule remembers


def test_a_finished_run_keeps_one_checkpoint_and_little_else(tmp_path: Path) -> None:
    """Three numbers a parameter and client: the weight and Adam's two moments, which more rounds need."""
    chosen = config("sage-os", rounds=12)
    simulate(tmp_path / "run", chosen)
    kept = list((tmp_path / "run" / "checkpoint").iterdir())
    assert [path.name for path in kept] == ["round-00012"]
    sizes = {path: path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file()}
    checkpoint = sum(size for path, size in sizes.items() if kept[0] in path.parents)
    whole = 3 * 4 * world(chosen).layout.width * chosen.clients
    assert whole <= checkpoint <= whole + 5 * OVERHEAD
    losses = [path for path in sizes if path.parent.name == "losses"]
    assert len(losses) <= chosen.rounds
    evidence = chosen.rounds * chosen.clients * (chosen.clients - 1) * 128  # a byte each, at most
    assert sum(sizes[path] for path in losses) <= evidence + OVERHEAD * len(losses)
    assert sum(sizes.values()) - checkpoint - sum(sizes[path] for path in losses) < 100_000
