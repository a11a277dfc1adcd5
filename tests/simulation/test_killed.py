"""kill -9 at any moment: the run goes on bit for bit, and nobody is left behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from small_runs import ROUGH, config, differing, files, simulate

from sagefl.runs.config import RunConfig
from sagefl.simulation.engines import EngineError
from sagefl.simulation.engines.processes import context
from sagefl.simulation.simulator import InterruptedRunError

Reference = Callable[..., Path]
LARGE = {"name": "mlp", "options": {"hidden": 96}}  # so that a checkpoint takes a while to write
PLAIN = config("sage-os", rounds=6, model=LARGE)
HARSH = config("sage-os", rounds=6, model=LARGE, **ROUGH)
PACED = config("sage-m", rounds=6, model=LARGE, clock={"network": "phones", "schedule": "async"})


class Tell:
    """Writes down who works for this process, then goes on."""

    def __init__(self, directory: Path) -> None:
        self.path = directory.with_suffix(".workers")

    def start(self, config: RunConfig, first_round: int) -> None:
        pass

    def round(self, record: Any) -> None:
        self.path.write_text(" ".join(str(p.pid) for p in multiprocessing.active_children()))

    def end(self, summary: Any) -> None:
        pass


def work(directory: Path, settings: RunConfig, engine: str) -> None:
    simulate(directory, settings, engine=engine, workers=2, every=1, callbacks=[Tell(directory)])


def started(directory: Path, settings: RunConfig, engine: str) -> Any:
    """A real process that runs this config; forked from the server that also makes the engines' workers."""
    process = context().Process(target=work, args=(directory, settings, engine))
    process.start()
    return process


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition: Callable[[], bool], seconds: float = 60.0, pause: float = 0.02) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(pause)
    return False


def kill(process: Any, directory: Path) -> None:
    """SIGKILL, and then nobody who worked for it may stay."""
    told = directory.with_suffix(".workers")
    workers = [int(pid) for pid in told.read_text().split()] if told.exists() else []
    with suppress(ProcessLookupError):  # it may have been done just before, and its server has taken note
        os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    assert process.exitcode in (-signal.SIGKILL, 0, 255)
    assert wait_for(lambda: not any(alive(pid) for pid in workers)), "workers outlived their run"


def kill_somewhere(directory: Path, settings: RunConfig, engine: str, chance: random.Random) -> None:
    process = started(directory, settings, engine)
    begun = (directory / "events.log").exists
    wait_for(lambda: begun() or not process.is_alive())
    time.sleep(chance.uniform(0, 1.0))
    kill(process, directory)


def kill_while_writing(directory: Path, settings: RunConfig, engine: str, after: int) -> bool:
    """Kill while a checkpoint stands half written; tells whether that moment was met."""
    process = started(directory, settings, engine)
    folder = directory / "checkpoint"

    def writing() -> bool:
        return process.exitcode is not None or any(
            p.suffix == ".partial" and int(p.stem.split("-")[1]) > after for p in list_folder(folder)
        )

    wait_for(writing, pause=0.0002)
    kill(process, directory)
    return any(p.suffix == ".partial" for p in list_folder(folder))


def list_folder(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:
        return


@pytest.mark.parametrize(
    ("settings", "engine"),
    [(PLAIN, "processes"), (HARSH, "sequential"), (PACED, "sequential")],
    ids=["plain", "rough", "own pace"],
)
def test_killed_at_random_and_inside_a_checkpoint_it_ends_as_if_never_stopped(
    settings: RunConfig, engine: str, tmp_path: Path, reference: Reference
) -> None:
    run, chance = tmp_path / "run", random.Random()
    kill_while_writing(run, settings, engine, after=1)
    kill_somewhere(run, settings, engine, chance)
    simulate(run, settings, every=1)
    assert differing(files(run), files(reference(settings, 1))) == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sequential", "processes"])
@pytest.mark.parametrize("settings", [PLAIN, HARSH, PACED], ids=["plain", "rough", "own pace"])
def test_killed_many_times_over(settings: RunConfig, engine: str, tmp_path: Path, reference: Reference) -> None:
    chance, met = random.Random(), 0
    for trial in range(3):
        run = tmp_path / f"run{trial}"
        for after in range(4):
            if chance.random() < 0.5:
                kill_somewhere(run, settings, engine, chance)
            else:
                met += kill_while_writing(run, settings, engine, after)
        simulate(run, settings, every=1)
        assert differing(files(run), files(reference(settings, 1))) == []
    assert met > 0, "no kill hit a checkpoint write: the test has lost its point"


def test_a_dead_worker_is_said_with_what_to_do(tmp_path: Path, reference: Reference) -> None:
    others = {child.pid for child in multiprocessing.active_children()}  # pools that other tests keep

    def workers() -> list[Any]:
        return [child for child in multiprocessing.active_children() if child.pid not in others]

    class Murder(Tell):
        def round(self, record: Any) -> None:
            if record["round"] == 1:
                victim = workers()[0]
                os.kill(victim.pid, signal.SIGKILL)
                victim.join(10)

    settings = config("rg")
    with pytest.raises(EngineError, match=r"a worker process died .*resume the run, with fewer --workers"):
        simulate(tmp_path / "run", settings, engine="processes", workers=2, callbacks=[Murder(tmp_path / "x")])
    assert wait_for(lambda: not workers()), "the other worker stayed"
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), files(reference(settings))) == []


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_being_asked_to_stop_ends_after_the_round_with_a_checkpoint(
    sign: signal.Signals, tmp_path: Path, reference: Reference, caplog: pytest.LogCaptureFixture
) -> None:
    class Ask(Tell):
        def round(self, record: Any) -> None:
            if record["round"] == 0:
                os.kill(os.getpid(), sign)

    settings = config("sage-os")
    before = signal.getsignal(sign)
    with pytest.raises(InterruptedRunError, match=r"stopped after round 1 of 4; go on with: sagefl resume .*run"):
        simulate(tmp_path / "run", settings, callbacks=[Ask(tmp_path / "x")])
    assert "stopping after this round; once more stops at once" in caplog.text
    assert signal.getsignal(sign) == before
    assert (tmp_path / "run" / "checkpoint" / "round-00001").is_dir()
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), files(reference(settings))) == []


def test_asking_twice_stops_at_once_and_loses_nothing(tmp_path: Path, reference: Reference) -> None:
    class Insist(Tell):
        def round(self, record: Any) -> None:
            if record["round"] == 2:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

    settings = config("sage-os")
    with pytest.raises(KeyboardInterrupt):
        simulate(tmp_path / "run", settings, callbacks=[Insist(tmp_path / "x")])
    simulate(tmp_path / "run", settings)
    assert differing(files(tmp_path / "run"), files(reference(settings))) == []


def test_asked_to_stop_in_the_last_round_it_just_ends(tmp_path: Path) -> None:
    class Ask(Tell):
        def round(self, record: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    assert simulate(tmp_path / "run", config("rg", rounds=1), callbacks=[Ask(tmp_path / "x")])["rounds"] == 1
