#!/usr/bin/env bash
# Installs the dependencies of the Python examples into DIR (gRPC, and the stubs of proto/), and
# prints DIR. Needs neither root nor a venv. If they are installed already and neither proto/ nor the
# requirements have changed, it only prints.
set -eu

die() { echo "python_client.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/python_client.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd -P)
cd "$(dirname "$0")/.."

checksum=$(cat examples/python/requirements.txt proto/anneal/v1/*.proto | cksum)
if [ "$(cat "$dir/made_of" 2>/dev/null || true)" != "$checksum" ]; then
    command -v python3 >/dev/null || die "needs python3 with pip"
    rm -rf "$dir/packages" "$dir/stubs" "$dir/made_of"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --only-binary=:all: \
        --target "$dir/packages" --requirement examples/python/requirements.txt >&2 || die "pip could not install gRPC"
    PYTHONPATH="$dir/packages" STUBS="$dir/stubs" examples/python/generate.sh
    echo "$checksum" > "$dir/made_of"
fi
echo "$dir"
