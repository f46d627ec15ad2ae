#!/usr/bin/env bash
# Installs the libraries of the benchmark's scenario `peers` from PyPI into a virtual environment in
# DIR, with gRPC and anneal's stubs, and prints DIR. If nothing has changed since it was made, it only
# prints. DIR/bin/python with PYTHONPATH=DIR/stubs runs dev/bench/peers/peers.py.
set -eu

die() { echo "peers.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/peers.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd -P)
cd "$(dirname "$0")/.."

requirements="dev/bench/peers/requirements.txt examples/python/requirements.txt"
checksum=$(cat $requirements proto/anneal/v1/*.proto | cksum)
if [ "$(cat "$dir/made_of" 2>/dev/null || true)" != "$checksum" ]; then
    command -v python3 >/dev/null || die "needs python3"
    python3 -m venv --clear "$dir" >&2 || die "python3 could not make a virtual environment (Debian: python3-venv)"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: \
        $(printf -- '--requirement %s ' $requirements) >&2 || die "pip could not install the libraries"
    PYTHON="$dir/bin/python" STUBS="$dir/stubs" examples/python/generate.sh
    echo "$checksum" > "$dir/made_of"
fi
echo "$dir"
