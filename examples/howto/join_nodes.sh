#!/usr/bin/env bash
# A federation that machines join by ticket: a keeper, a first node, and a second one that joins while the first runs.
set -euo pipefail
node="$(cd "$(dirname "$0")/../node" && pwd)"
port=${PORT:-27440}
mkdir -p clinics/federation && cd clinics
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT

appears() {                                                 # appears WHAT FILE: wait for it, two minutes at most
  for _ in $(seq 600); do grep -q "$1" "$2" 2> /dev/null && return; sleep 0.2; done
  echo "no $1 in $2"; tail -n 3 "$2"; exit 1
}

# On the machine that keeps the federation: what all members share, here from examples/node/north.toml, and the keeper.
{ echo "rounds = 100000"; sed -n '/^\[data\]/,/^deadline/p' "$node/north.toml"; echo "pace = 0.2"; } > federation/settings.toml
sagefl node keep federation --listen 127.0.0.1:$port > keeper.log 2>&1 &
appears keeping keeper.log

# Each newcomer gets a ticket, redeems it on its own machine, puts its data there and runs.
for name in north south; do
  port=$((port + 1))
  ticket=$(sagefl node invite federation $name)             # on the keeper's machine
  sagefl node join "$ticket" --listen 127.0.0.1:$port       # on the new machine; there: --listen 0.0.0.0:7443 --address HOST:7443
  cp "$node/wards.py" $name/
  sagefl node run $name/node.toml > $name.log 2>&1 &
  appears '"round": 0' $name.log
done
appears '"chosen": \["south"\]' north.log                   # north has heard of it, asked it and pulled, without a restart
echo "north has merged a model of south"

sagefl node leave south/node.toml
appears neighbour-left north.log
echo "north has heard that south left"
