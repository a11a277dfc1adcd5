#!/usr/bin/env bash
# The container's steps where no engine is at hand: a fresh Debian root by debootstrap, examples/node/Dockerfile carried
# out in it line by line, and then, as its user and with all but /node and /tmp read-only as compose.yaml asks, two nodes
# that finish, and a third that the image's own commands start, find alive and stop. Needs root.
#
#   tools/fresh_root.sh [FOLDER]      MIRROR: of Debian; PIP_*: as for pip, a folder in PIP_FIND_LINKS is taken along
set -euo pipefail
cd "$(dirname "$0")/.."
root="$(realpath -m "${1:-build/root}")"
[ -n "${APART:-}" ] || APART=1 exec unshare --mount "$0" "$root" # what is mounted here goes when this ends

test -x "$root/usr/bin/python3" || debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
  bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mkdir -p "$root/node" "$root${PIP_FIND_LINKS:-/tmp}"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
if [ -d "${PIP_FIND_LINKS:-}" ]; then mount --bind "$PIP_FIND_LINKS" "$root$PIP_FIND_LINKS"; fi
if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/pip.conf"; fi
mapfile -t settings < <(env | grep '^PIP_' || true)

within() { # USER COMMAND...
  chroot --userspec="$1" "$root" env -i PATH=/opt/venv/bin:/usr/bin:/bin HOME=/tmp "${settings[@]}" "${@:2}"
}
words() { tr -d '[]",' <<< "$1"; } # of a list as a Dockerfile writes it

within 0:0 python3 -m venv --clear /opt/venv # Debian keeps pip out of its own Python
folder=/ user=0:0
while read -r step rest; do
  case "$step" in
    WORKDIR) folder="$rest" && mkdir -p "$root$folder" ;;
    COPY)
      read -ra files <<< "$rest"
      target="$root$folder/${files[-1]}"
      mkdir -p "$target"
      for file in "${files[@]::${#files[@]}-1}"; do
        if [ -d "$file" ]; then cp -r "$file/." "$target"; else cp "$file" "$target"; fi
      done
      ;;
    RUN) within 0:0 sh -c "cd $folder && $rest" ;;
    USER) user="$rest" ;;
    HEALTHCHECK) read -ra healthy <<< "$(words "${rest#*CMD}")" ;;
    ENTRYPOINT) read -ra start <<< "$(words "$rest")" ;;
    CMD) read -ra config <<< "$(words "$rest")" ;;
  esac
done < examples/node/Dockerfile

rm -rf "$root/node/"* && cp -r examples "$root/node/" && chown -R "$user" "$root/node"
mount --bind "$root/node" "$root/node"
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"
if within 0:0 touch /opt/sagefl/changed 2> /dev/null; then echo "the root can be written to"; exit 1; fi

within "$user" bash -c "cd /node && bash examples/howto/deploy_nodes.sh"
within "$user" bash -c "cd /node/federation && sed 's/^rounds = .*/rounds = 100000/; s/run-north/run/' north.toml > ${config[*]}"
within "$user" env -C /node/federation sh -c 'echo $$ > /tmp/pid; exec "$@"' run "${start[@]}" "${config[@]}" > /dev/null &
for _ in $(seq 120); do
  sleep 1
  if within "$user" env -C /node/federation "${healthy[@]}" 2> /dev/null; then alive=yes && break; fi
done
kill -TERM "$(cat "$root/tmp/pid")"
status=0 && wait $! || status=$?
[ "${alive:-}" = yes ] && [ "$status" = 3 ] || { echo "not found alive, or ended with $status instead of 3"; exit 1; }
echo "the Dockerfile's steps work in a fresh root"
