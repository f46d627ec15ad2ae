#!/usr/bin/env bash
# Writes what the binary `anneal` is made of to FILE (CycloneDX 1.5, JSON): every crate that is linked into it or runs while it
# is built, with version, licence and digest, as Cargo.lock pins them. Needs cargo-cyclonedx (scripts/cargo_tool.sh).
set -eu

die() { echo "sbom.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/sbom.sh FILE"
mkdir -p "$(dirname "$1")"
file=$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")
cd "$(dirname "$0")/.."

# It writes a file beside the manifest of each crate of the workspace; only the binary's is wanted, and none is to stay.
name=sbom-$$
trap 'find . -maxdepth 2 -name "$name*" -delete' EXIT
# cargo-cyclonedx knows no --locked: what is not current must not be made so on the way.
cargo metadata --locked --format-version 1 >/dev/null || die "Cargo.lock is not current"
host=$(rustc --version --verbose | sed -n 's/^host: //p')
# With its default features: the container's binary has fewer, and so a few crates less.
cargo cyclonedx --quiet --manifest-path cli/Cargo.toml --format json --spec-version 1.5 --target "$host" \
    --override-filename "$name" >&2
[ -s "cli/$name.json" ] || die "cargo-cyclonedx has written nothing for cli/"
# Where it was made is nobody's business, and would differ from machine to machine.
sed "s|file://$(pwd -P)/|file:///anneal/|g" "cli/$name.json" > "$file"
echo "$file"
