#!/usr/bin/env bash
# The oldest versions that pyproject.toml allows, installed into a folder of their own, and what users do first on them.
# torch is the exception: it comes at the version of constraints.txt, the only CPU build that is to be had everywhere.
#
#   tools/lowest.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
home="$(realpath -m "${1:-build/lowest}")"
python="${PYTHON:-python3}"
export UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}"

test -x "$home/venv/bin/python" || "$python" -m venv "$home/venv"
"$home/venv/bin/python" -m pip install --quiet uv
uv="$home/venv/bin/uv"
grep '^torch==' constraints.txt > "$home/torch.txt"
extras=(--extra sim --extra study --extra node --extra view)
"$uv" pip compile --quiet pyproject.toml "${extras[@]}" --resolution lowest-direct --constraints "$home/torch.txt" \
  --no-annotate --no-header -o "$home/lowest.txt"
"$uv" pip install --quiet --python "$home/venv/bin/python" -r "$home/lowest.txt"
"$uv" pip install --quiet --python "$home/venv/bin/python" --no-deps -e .
"$uv" pip check --python "$home/venv/bin/python"

"$home/venv/bin/python" - <<'PYTHON'
import importlib, pkgutil
import sagefl

optional = ("ray", "engines.ray", "__main__", "generate")  # what other extras or nobody but developers need
names = [m.name for m in pkgutil.walk_packages(sagefl.__path__, "sagefl.")]
wanted = [name for name in names if not name.endswith(optional) and not name.startswith("sagefl.flower")]
for name in wanted:
    importlib.import_module(name)
print(f"{len(wanted)} modules imported")
PYTHON

tools/first_steps.sh "$home/venv/bin"
echo "the lowest versions work: $home/lowest.txt"
