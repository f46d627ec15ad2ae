#!/usr/bin/env bash
# Makes sure that PgBouncer is installed, behind which one test runs. Says nothing when it is; installs it on
# Debian and Ubuntu; elsewhere that test is skipped, with a line that says so.
set -eu

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

if command -v pgbouncer >/dev/null; then exit 0; fi
if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
    echo "pgbouncer.sh: installing pgbouncer with apt-get" >&2
    as_root apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer >&2
    exit 0
fi
echo "pgbouncer.sh: there is no pgbouncer; its test will be skipped" >&2
