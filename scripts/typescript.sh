#!/usr/bin/env bash
# Checks the types of the TypeScript programs of the tutorial and compiles them into DIR, for
# versions of Node that do not run TypeScript. Prints DIR. If nothing has changed, it only prints.
# Without npm it says that their tests will fail.
set -eu

die() { echo "typescript.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/typescript.sh DIR"
if ! command -v npm >/dev/null; then
    echo "typescript.sh: there is no npm; the tests of the TypeScript programs will fail in the gate" >&2
    exit 0
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd -P)
cd "$(dirname "$0")/../examples/tutorial"

sources=(typescript/*.ts typescript/*.json browser/*)
checksum=$(cat "${sources[@]}" | cksum)
if [ "$(cat "$dir/made_of" 2>/dev/null || true)" != "$checksum" ]; then
    rm -rf "${dir:?}/typescript" "$dir/browser" "$dir/made_of"
    mkdir "$dir/typescript" "$dir/browser"
    for source in "${sources[@]}"; do cp "$source" "$dir/$source"; done
    (cd "$dir/typescript" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >&2) || die "npm could not install TypeScript"
    (cd "$dir/typescript" && npx --no-install tsc >&2) || die "the programs do not compile"
    cp "$dir/browser/index.html" "$dir/typescript/dist/browser/"
    echo "$checksum" > "$dir/made_of"
fi
echo "$dir"
