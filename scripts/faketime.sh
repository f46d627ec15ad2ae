#!/usr/bin/env bash
# Makes sure that libfaketime is installed, with which tests make clocks jump. Says nothing when it is; installs it on
# Debian and Ubuntu; elsewhere those tests are skipped, with a line that says so.
set -eu

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

for library in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1 /usr/lib64/faketime/libfaketimeMT.so.1; do
    if [ -f "$library" ]; then exit 0; fi
done
if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
    echo "faketime.sh: installing faketime with apt-get" >&2
    as_root apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends faketime >&2
    exit 0
fi
echo "faketime.sh: there is no libfaketime; its tests will be skipped" >&2
