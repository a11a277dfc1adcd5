"""The peers' own environment: sagefl, fluke-fl and gossipy-dfl on one torch, away from the project's .venv."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PEERS = ("fluke-fl==0.8.1", "gossipy-dfl==0.0.1")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def make(where: Path) -> Path:
    """The Python of the environment in `where`, made or brought up to date first where something has changed."""
    python, done = where / "bin" / "python", where / "made-of.txt"
    recipe = _recipe()
    if not (done.is_file() and done.read_text() == recipe):
        print(f"making the peers' environment in {where} (once, a few minutes)", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        requirements = [_torch(), "-r", str(HERE / "requirements.txt"), "-e", f"{ROOT}[sim]"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *requirements], check=True)
        # Their dependencies ask for torchvision, wandb, clearml, opacus ... which the race does not use.
        subprocess.run([*pip, "--no-deps", *PEERS], check=True)
        _put_stand_ins(python)
        done.write_text(recipe)
    return python


def _torch() -> str:
    """The project's torch: left open, pip would fetch a newer build with gigabytes of CUDA packages."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def _recipe() -> str:
    """What the environment is made of."""
    return "\n".join([_torch(), *PEERS, (HERE / "requirements.txt").read_text(), (HERE / "absent.py").read_text()])


def _put_stand_ins(python: Path) -> None:
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([str(python), "-c", ask], check=True, capture_output=True, text=True).stdout.strip())
    shutil.copy(HERE / "absent.py", site / "absent.py")
    (site / "absent.pth").write_text("import absent; absent.install()\n")
