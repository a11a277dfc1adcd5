#!/usr/bin/env bash
# Two nodes as processes of their own, on this machine: the same steps as on two machines, with loopback addresses.
set -euo pipefail
node="$(cd "$(dirname "$0")/../node" && pwd)"
mkdir -p federation && cd federation
cp "$node/wards.py" .

sagefl node init identities north south                     # on one trusted machine; copy identities/NAME to node NAME

# The config files of examples/node, for two rounds at full pace on this machine and without the metrics endpoint.
north=127.0.0.1:${PORT:-27443}
south=127.0.0.1:$((${PORT:-27443} + 1))
for name in north south; do
  sed -e "s/^rounds = .*/rounds = 2/" -e "s/^pace = .*/pace = 0.0\nwait = 60.0\nlinger = 5.0/" -e "/^\[metrics\]/,/^$/d" \
      -e "s/0\.0\.0\.0:7443/${!name}/" -e "s/north\.example\.org:7443/$north/" -e "s/south\.example\.org:7443/$south/" \
      "$node/$name.toml" > "$name.toml"
done

sagefl node run north.toml > north.log 2>&1 &               # on machine north; better as a service, see docs/node.md
sagefl node run south.toml > south.log 2>&1 &               # on machine south
wait -n && wait -n
for name in north south; do
  grep -o '"event": *"round.*' $name.log | tail -n 1 || tail -n 3 $name.log
done
