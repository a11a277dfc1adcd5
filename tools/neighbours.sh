#!/usr/bin/env bash
# Beside other people's frameworks, each in an environment of its own: the guard inside Flower, together with all that
# sagefl[node] and sagefl[view] need, and the adapter inside fluke.
#
#   tools/neighbours.sh [flower|fluke ...]
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
quiet=(--quiet --disable-pip-version-check)
tests=(-m pytest --noconftest -q -p no:cacheprovider)

flower() {
  local bin=build/flower/bin
  test -x "$bin/python" || "$python" -m venv build/flower
  "$bin/pip" install "${quiet[@]}" "$(grep '^torch==' constraints.txt)" -e ".[flower,node,view]" pytest pytest-timeout
  "$bin/pip" check
  "$bin/python" "${tests[@]}" tests/flower
  tools/first_steps.sh "$bin"
  echo "beside Flower: $("$bin/pip" list 2>/dev/null | grep -E '^(flwr|protobuf|grpcio|typer|rich) ' | tr -s ' ' | tr '\n' ' ')"
}

fluke() { # the environment of the race
  local bin=build/peers/bin
  "$python" -c 'import sys; sys.path.insert(0, "benchmarks"); from pathlib import Path; from peers import environment; environment.make(Path("build/peers"))'
  "$bin/python" -m pip install "${quiet[@]}" pytest
  "$bin/python" "${tests[@]}" tests/docs/test_fluke_adapter.py
}

for neighbour in "${@:-flower fluke}"; do
  for name in $neighbour; do "$name"; done
done
