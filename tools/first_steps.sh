#!/usr/bin/env bash
# What users do first, with a sagefl that is installed somewhere: ask for help, decide, run, compare, replay, report, swarm, view.
#
#   tools/first_steps.sh BIN       BIN: the folder with sagefl and python
set -euo pipefail
bin="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."
sagefl="$bin/sagefl"
work="$(mktemp -d)"
trap 'kill "${viewer:-}" 2> /dev/null || true; rm -rf "$work"' EXIT

world=(--clients 4 --rounds 2 --eval-every 1 --set model.name=mlp --set topology.kind=complete)
for command in "" run "node init"; do "$sagefl" $command --help > "$work/helped"; done
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
"$bin/python" -c "import sys, urllib.request as r; assert r.urlopen(sys.argv[1], timeout=20).status == 200" "$address"
echo "the first steps work: $("$bin/python" --version), $("$sagefl" --version)"
