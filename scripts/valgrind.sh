#!/usr/bin/env bash
# Makes sure that valgrind is installed, which counts instructions for the gate. Says nothing when it is; installs it on
# Debian and Ubuntu; says what to do elsewhere. On a Mac there is none, and nothing is counted.
set -eu

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

if command -v valgrind >/dev/null || [ "$(uname -s)" = Darwin ]; then exit 0; fi
if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
    echo "valgrind.sh: installing valgrind with apt-get" >&2
    as_root apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind >&2
    exit 0
fi
echo "valgrind.sh: valgrind is missing. Install your system's package" >&2
exit 1
