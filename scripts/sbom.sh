#!/usr/bin/env bash
# Writes a software bill of materials of the binary `anneal` to FILE (CycloneDX 1.5, JSON): every
# crate that is linked into it or runs during its build, with version, license and digest, as
# Cargo.lock pins them. Needs cargo-cyclonedx (scripts/cargo_tool.sh).
set -eu

die() { echo "sbom.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/sbom.sh FILE"
mkdir -p "$(dirname "$1")"
file=$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")
cd "$(dirname "$0")/.."

# cargo-cyclonedx writes a file beside the manifest of each crate of the workspace, whatever
# --manifest-path names. Only the binary's is used, and all are deleted. At depth 3 are those of the
# crates in dev/.
name=sbom-$$
trap 'find . -maxdepth 3 -name "$name*" -delete' EXIT
# cargo-cyclonedx has no --locked and would update an old Cargo.lock, so this checks it first.
cargo metadata --locked --format-version 1 >/dev/null || die "Cargo.lock is not current"
host=$(rustc --version --verbose | sed -n 's/^host: //p')
# Uses the default features. The container's binary has fewer features and fewer crates.
cargo cyclonedx --quiet --manifest-path cli/Cargo.toml --format json --spec-version 1.5 --target "$host" \
    --override-filename "$name" >&2
[ -s "cli/$name.json" ] || die "cargo-cyclonedx has written nothing for cli/"
# Remove the path of the checkout: it is private, and differs between machines.
sed "s|file://$(pwd -P)/|file:///anneal/|g" "cli/$name.json" > "$file"
echo "$file"
