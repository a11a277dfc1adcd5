"""Run folders from strangers: how much would be read is known beforehand, and none of their code runs unasked."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from sagefl.runs import parquet
from sagefl.runs.config import RunConfig
from sagefl.runs.files import RunError
from sagefl.runs.losses import read_losses
from sagefl.runs.rundir import RunDirectory, read_table
from sagefl.view.shelf import Run
from sagefl.view.tables import decisions
from sagefl.view.world import world

FRAME = pl.DataFrame({"round": list(range(1000)), "risks": [[0.5] * 5] * 1000, "reason": ["gossip"] * 1000})


MEASURE = """
import resource, sys
from pathlib import Path
{imports}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {work}
except Exception as error:
    print(type(error).__name__, error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def measured(imports: str, work: str, path: Path) -> tuple[str, float]:
    """What a process of its own says, and by how many megabytes its memory grew at most."""
    code = MEASURE.format(imports=imports, work=work)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    *told, grown = done.stdout.splitlines()
    return "\n".join(told), int(grown) / 1024


def reading(path: Path, most: int | None = None) -> tuple[str, float]:
    limit = "" if most is None else f"; parquet.MOST_BYTES = rundir.MOST_BYTES = {most}"
    return measured(f"from sagefl.runs import parquet, rundir{limit}", "rundir.read_table(Path(sys.argv[1]))", path)


def test_an_ordinary_table_is_read_and_its_footer_understood(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    FRAME.write_parquet(path)
    with path.open("rb") as file:
        rows, size = parquet._announced(file)
    assert rows == 1000
    assert FRAME.estimated_size() < size < 4 * FRAME.estimated_size()
    assert read_table(path).equals(FRAME)


FOLDED = {
    "booleans": lambda n: pl.select(x=pl.repeat(True, 16 * n, dtype=pl.Boolean)),
    "one list": lambda n: pl.select(x=pl.repeat(True, 16 * n, dtype=pl.Boolean).implode()),
    "numbers": lambda n: pl.select(x=pl.repeat(1.0, 2 * n)),
    "words": lambda n: pl.select(x=pl.repeat("gossip", n)),
    "a list of words": lambda n: pl.select(x=pl.repeat("gossip", n).implode()),
}


LIMIT = 64 * 2**20  # instead of gigabytes, which would have to be made first


@pytest.mark.parametrize("kind", FOLDED)
def test_a_small_file_that_unfolds_far_is_refused_before_it_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "metrics.parquet"
    FOLDED[kind](LIMIT // 16 + 1).write_parquet(path, compression="zstd")
    assert path.stat().st_size < 200_000
    told, grown = reading(path, LIMIT)
    assert "more than any run has" in told
    assert grown < 30


def test_the_limit_is_two_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    pl.select(x=pl.repeat(True, parquet.MOST_BYTES + 1, dtype=pl.Boolean)).write_parquet(path, compression="zstd")
    told, grown = reading(path)
    assert "at most 2,147,483,648" in told
    assert grown < 30


@pytest.mark.parametrize("kind", FOLDED)
def test_what_is_read_takes_about_what_was_announced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "metrics.parquet"
    FOLDED[kind](LIMIT // 40).write_parquet(path, compression="zstd")
    told, grown = reading(path, LIMIT)
    assert "Error" not in told
    assert grown < 2 * LIMIT / 2**20


def test_a_long_word_that_is_repeated_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    pl.select(x=pl.repeat("long" * 12_500, 2000)).write_parquet(path, compression="zstd")
    told, grown = reading(path, LIMIT)
    assert "words of more than" in told
    assert grown < 200


def test_pages_that_hold_more_than_their_footer_says_are_refused(tmp_path: Path) -> None:
    """The footer of a small table behind the pages of a large one."""
    small, large = io.BytesIO(), io.BytesIO()
    pl.select(x=pl.repeat("gossip", 10)).write_parquet(small)
    pl.select(x=pl.repeat("gossip", 10_000_000)).write_parquet(large)
    body, footer = large.getvalue(), small.getvalue()
    length = int.from_bytes(footer[-8:-4], "little")
    path = tmp_path / "metrics.parquet"
    path.write_bytes(body[: -8 - int.from_bytes(body[-8:-4], "little")] + footer[-8 - length :])
    told, grown = reading(path)
    assert "its pages hold more than its footer says" in told
    assert grown < 50


def test_a_table_holds_no_more_than_a_run_of_its_config_could(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RunConfig(clients=3, rounds=3).to_toml())
    run = RunDirectory(tmp_path)
    frame = pl.DataFrame({"round": [0, 1, 2], "client": [0, 1, 2]})
    for wrong, why in (
        (pl.concat([frame] * 4), "has 12 rows, and a run of this config has at most 9"),
        (frame.with_columns(round=pl.lit(2_000_000_000)), "names a round beyond the 3 of the run"),
        (frame.with_columns(client=pl.lit(-1)), "names a client beyond the 3 of the run"),
    ):
        wrong.write_parquet(tmp_path / "decisions.parquet")
        with pytest.raises(RunError, match=why):
            run.table("decisions")
    frame.write_parquet(tmp_path / "decisions.parquet")
    assert run.table("decisions").equals(frame)


LOSSES: dict[str, Any] = {
    "clients": np.zeros(1, np.int32), "pools": np.ones(1, np.int32), "scorings": np.zeros(1, np.int8),
    "shapes": np.array([[2, 3]], np.int32), "peers": np.zeros(2, np.int32),
    "asked": np.packbits(np.ones(6, bool)), "bits": np.packbits(np.ones(6, bool)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"shapes": np.array([[12_000, 12_000]], np.int32)}, "of 144,000,000 entries"),
        ({"shapes": np.array([[12_000, 12_00]], np.int32)}, "1 bytes tell what was asked of 14,400,000 entries"),
        ({"shapes": np.array([[-2, -3]], np.int32)}, "not as many shapes as clients"),
        ({"shapes": np.array([[2, 3]] * 4, np.int32)}, "not as many shapes as clients"),
        ({"peers": np.zeros(9, np.int32)}, "not as many rows as peers"),
        ({"bits": np.zeros(0, np.uint8)}, "not as many losses as the 6 that were asked for"),
        ({"clients": None, "clienks": np.zeros(1, np.int32)}, "it lacks clients"),
        ({"bits": np.zeros(1, np.uint16)}, "does not hold recorded losses"),
    ],
)  # fmt: skip
def test_losses_whose_arrays_do_not_fit_together_take_no_memory(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    path = tmp_path / "round-00000.safetensors"
    save_file(LOSSES, path)
    assert read_losses(path)[0].losses.shape == (2, 3)
    save_file({name: array for name, array in (LOSSES | changed).items() if array is not None}, path)
    told, grown = measured("from sagefl.runs.losses import read_losses", "read_losses(Path(sys.argv[1]))", path)
    assert why in told
    assert grown < 50


@pytest.mark.parametrize("kind", ["complete", "er"])
def test_a_page_draws_no_graph_of_millions_of_edges(tmp_path: Path, kind: str) -> None:
    config = RunConfig.parse({"clients": 4000, "rounds": 3, "topology": {"kind": kind}, "data": {"dataset": "a:b"}})
    (tmp_path / "run.toml").write_text(config.to_toml())
    pl.DataFrame(
        {"round": [0], "client": [1], "peers": [[0, 3, 9999]], "chosen": [[0]], "reason": ["gossip"], "anchors": [1],
         "evaluations": [1], "direction": ["pull"]}
    ).write_parquet(tmp_path / "decisions.parquet")  # fmt: skip
    imports = "from sagefl.view.shelf import Run; from sagefl.view.world import world"
    told, grown = measured(
        imports, "found = world(Run(Path(sys.argv[1]))); print(found['edges'], found['notes'])", tmp_path
    )
    assert "[[0, 1], [1, 3]]" in told
    assert "edges is not drawn" in told
    assert grown < 50


def test_a_page_shows_no_run_of_a_million_clients(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RunConfig(clients=1_000_000, rounds=3).to_toml())
    with pytest.raises(RunError, match="a page shows up to 50,000"):
        world(Run(tmp_path))


def test_a_row_of_a_far_round_does_not_make_millions_of_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RunConfig(clients=1000, rounds=1_000_000).to_toml())
    pl.DataFrame(
        {"round": [999_999], "client": [999], "peers": [[0]], "chosen": [[0]], "reason": ["gossip"], "anchors": [1],
         "evaluations": [1], "direction": ["pull"]}
    ).write_parquet(tmp_path / "decisions.parquet")  # fmt: skip
    with pytest.raises(RunError, match="1,000,000 rounds of 1,000 clients are not drawn"):
        decisions(Run(tmp_path))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 400), st.integers(0, 255))
def test_whatever_a_footer_holds_ends_in_an_error_of_ours(noise: bytes, at: int, byte: int) -> None:
    made = io.BytesIO()
    FRAME.head(3).write_parquet(made)
    content = bytearray(made.getvalue())
    content[-9 - at % 300] = byte
    for raw in (bytes(content), noise, noise + len(noise).to_bytes(4, "little") + b"PAR1"):
        try:
            parquet.check_size(io.BytesIO(raw), Path("table"))
        except RunError:
            continue


def test_a_run_of_a_billion_clients_is_not_read(tmp_path: Path) -> None:
    text = RunConfig(clients=3, rounds=3).to_toml().replace("clients = 3", "clients = 1000000000")
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(RunError, match="1,000,000,000 clients"):
        _ = RunDirectory(tmp_path).config


def test_resume_runs_code_named_in_a_folder_only_when_told_to(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "theirs.py").write_text("open('ran', 'w').close()\n")
    config = RunConfig.parse({"clients": 3, "rounds": 1, "data": {"dataset": "theirs:data"}})
    (run / "run.toml").write_text(config.to_toml())
    assert config.code == ("theirs:data",)
    command = [sys.executable, "-c", "from sagefl.cli import app; app()", "resume", "run"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 2
    assert "names code that would be run: theirs:data" in told.stderr
    assert not (tmp_path / "ran").exists()
    allowed = subprocess.run([*command, "--allow-code"], cwd=tmp_path, capture_output=True, text=True)
    assert "names code that would be run" not in allowed.stderr  # what it says now comes from looking at the code
    assert "theirs:data" in allowed.stderr
