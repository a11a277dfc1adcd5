"""With the core alone installed: what works, and what the other commands say is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sagefl.extras import EXTRAS, lacking

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {  # where it is not the package's own name
    "grpcio": "grpc",
    "protobuf": "google",
    "prometheus-client": "prometheus_client",
    "tomli-w": "tomli_w",
    "pillow": "PIL",
    "mlflow-skinny": "mlflow",
}
LOSSES = str(ROOT / "examples" / "losses.csv")
NEED: dict[str, list[str]] = {  # commands by the extra that they ask for
    "sim": [
        "run",
        "resume .",
        "compare",
        "compare .",
        "scout",
        "replay .",
        "config",
        "config --set seed=2",
        "bench",
        "methods",
    ],
    "node": ["node init f a", "node revoke f a", "node run x.toml", "node status .", "node config", "swarm"],
    "view": ["view .", "report .", f"decide {LOSSES} --html page.html"],
    "study": ["study paper --audit", "study paper --status", "study beyond --status"],
}
NEED_NOTHING = [f"decide {LOSSES}", "plan", "data list", "--version", "regret --decisions 10"]

CORE_ALONE = """
import json, sys
for package in json.loads(sys.argv[1]):
    sys.modules[package] = None  # as if it were not installed
from typer.testing import CliRunner
from sagefl.cli import app
said = {}
for command in json.loads(sys.argv[2]):
    result = CliRunner().invoke(app, command.split())
    said[command] = (result.exit_code, result.stderr, repr(result.exception))
print(json.dumps(said))
"""


def test_every_package_of_every_extra_is_known() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in listed.keys() - {"docs", "track"}:  # one builds the site, the other is made of others
        names = [re.split(r"[<>=\[]", text)[0] for text in listed[extra]]
        brought = {IMPORTED_AS.get(name, name) for name in names if name != "sagefl"}
        shared = set(EXTRAS["sim"]) if extra == "flower" else set()  # it takes some of them without torch
        assert brought - shared == set(EXTRAS[extra]), extra
    assert EXTRAS.keys() == listed.keys() - {"docs", "track"}


def test_with_the_core_alone_a_command_works_or_says_which_extra_it_needs(tmp_path: Path) -> None:
    away = {package for packages in EXTRAS.values() for package in packages} - {"pydantic"}  # newer typers bring it
    commands = [*NEED_NOTHING, *(command for asked in NEED.values() for command in asked)]
    told = subprocess.run(
        [sys.executable, "-c", CORE_ALONE, json.dumps(sorted(away)), json.dumps(commands)],
        capture_output=True, text=True, timeout=300, cwd=tmp_path, check=True,
    )  # fmt: skip
    said = json.loads(told.stdout)
    for command in NEED_NOTHING:
        assert said[command][0] == 0, (command, said[command])
    for extra, asked in NEED.items():
        for command in asked:
            code, message, raised = said[command]
            assert (code, raised) == (2, "SystemExit(2)"), (command, raised)
            first = re.escape(command.split()[0])
            install = re.escape(f"in the checkout, pip install -c constraints.txt -e '.[{extra}]'")
            assert re.fullmatch(rf"sagefl: `sagefl {first}` needs \w+, which is not installed: {install}\n", message)
    assert not list(tmp_path.iterdir())


def test_a_module_that_somebody_else_misses_is_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module that needs matplotlib is not helped by an extra, and its traceback says where the import is."""
    (tmp_path / "theirs.py").write_text("def data():\n    import matplotlib\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    from theirs import data  # type: ignore[import-not-found]

    with pytest.raises(ModuleNotFoundError) as caught:
        data()
    assert lacking(caught.value) is None


def test_a_users_data_that_misses_a_module_is_named_and_no_extra_is_offered(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("def data():\n    import matplotlib\n")
    code = "import sys; sys.modules['matplotlib'] = None; from sagefl.cli import app; app()"
    told = subprocess.run(
        [sys.executable, "-c", code, "run", "--dataset", "theirs:data"],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert told.returncode == 2
    assert "theirs:data() raised ModuleNotFoundError" in told.stderr
    assert "pip install" not in told.stderr
