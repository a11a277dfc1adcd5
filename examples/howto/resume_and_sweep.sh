#!/usr/bin/env bash
# A run that is killed, resumed as if nothing had happened, and then asked what other rules would have decided.
set -euo pipefail
here="$(dirname "$0")"

sagefl run --config "$here/small.toml" --engine sequential --checkpoint-every 1 --quiet --out runs/night &
until [ -e runs/night/checkpoint ]; do sleep 0.1; done
kill -KILL $! 2>/dev/null && echo "killed" || echo "it was faster than the kill"
wait $! 2>/dev/null || true

sagefl resume runs/night --engine sequential --quiet        # ends with what an undisturbed run ends with
sagefl replay runs/night --lambda 0,5e-4,2e-3 --delta .05,.1 # six rules on the same evidence, nothing is trained
