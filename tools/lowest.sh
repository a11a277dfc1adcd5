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

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
sagefl="$home/venv/bin/sagefl"
world=(--clients 4 --rounds 2 --eval-every 1 --set model.name=mlp --set topology.kind=complete)
"$sagefl" decide examples/losses.csv > "$work/decided"
"$sagefl" run --method sage-os "${world[@]}" --out "$work/runs/one"
"$sagefl" compare "${world[@]}" --methods rg,sage-e --out "$work/runs/two"
"$sagefl" replay "$work/runs/one" --lambda 0,2e-3 > "$work/replayed"
"$sagefl" report "$work/runs/one" -o "$work/report.html"
"$sagefl" swarm --nodes 2 --rounds 1 --set model.name=mlp --out "$work/swarm"
timeout 60 "$sagefl" view "$work/runs/one" --no-browser --port 0 > "$work/viewed" 2>&1 &
viewer=$!
for _ in $(seq 100); do grep -q http "$work/viewed" && break; sleep 0.2; done
address="$(grep -o 'http://[^ ]*' "$work/viewed" | head -n 1)"
"$home/venv/bin/python" -c "import sys, urllib.request as r; assert r.urlopen(sys.argv[1], timeout=20).status == 200" "$address"
kill "$viewer"
echo "the lowest versions work: $home/lowest.txt"
