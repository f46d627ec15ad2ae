#!/usr/bin/env bash
# Profiles the server: scripts/profile.sh append|context writes docs/performance/profile-append.txt (or -context.txt), the
# instructions of one call by area and by function, as callgrind counts them while a fixed number of calls is served.
# PostgreSQL and the worker run beside it, not counted, in an `anneal dev` of its own.
#
# CALLS=1600 is how many calls are counted; KEEP=FILE keeps what callgrind wrote, for kcachegrind or callgrind_annotate.
# ANNEAL=/path/to/anneal takes a binary with symbols that is there already; without it one is built (profile `profiling`).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH"

die() { echo "profile.sh: $*" >&2; exit 1; }

what=${1:-}
[ "$what" = append ] || [ "$what" = context ] || die "usage: scripts/profile.sh append|context"
scripts/postgres.sh
scripts/debian.sh valgrind
clients=$(scripts/python_client.sh .tools/python)
anneal=${ANNEAL:-${CARGO_TARGET_DIR:-target}/profiling/anneal}
[ -n "${ANNEAL:-}" ] || cargo build --locked --profile profiling --package anneal-cli

folder=$(mktemp -d)
chmod 711 "$folder" # PostgreSQL runs as somebody else where this is root
log=$folder/log
dev='' server=''
finish() { # ends what was started here, the server first
    for process in $server $dev; do kill "$process" 2>/dev/null || true; done
    for process in $server $dev; do wait "$process" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT

said() { # FILE PATTERN PROCESS: waits until the file says it, and prints what the parentheses held
    for _ in $(seq 600); do
        found=$(sed -nE "s|.*$2.*|\\1|p" "$1" | head -1)
        [ -z "$found" ] || { echo "$found"; return; }
        kill -0 "$3" 2>/dev/null || { tail -5 "$1" >&2; die "a process has ended before it was up"; }
        sleep 0.2
    done
    die "$1 does not say it is up"
}

"$anneal" --set server.grpc_address=127.0.0.1:0 --set server.http_address=127.0.0.1:0 dev --folder "$folder/dev" >"$log" 2>&1 &
dev=$!
postgres=$(said "$log" '  data  +([^ ]+)' "$dev")
database=postgres://postgres:$(cat "$postgres/password")@127.0.0.1:$(cat "$postgres/port")/anneal

ANNEAL_DATABASE_URL=$database valgrind --quiet --tool=callgrind --instr-atstart=no --separate-threads=no \
    --callgrind-out-file="$folder/calls" "$anneal" --set log.format=json \
    --set server.grpc_address=127.0.0.1:0 --set server.http_address=127.0.0.1:0 server >"$log.server" 2>&1 &
server=$!
address=$(said "$log.server" '"grpc":"([^"]+)"' "$server")

load() { PYTHONPATH="$clients/packages:$clients/stubs" python3 scripts/profile_load.py "$address" "$@"; }
calls=${CALLS:-1600}
talks=$(load prepare)
# shellcheck disable=SC2086 # the ids are words
load "$what" 160 $talks
callgrind_control --instr=on "$server" >/dev/null 2>&1
# shellcheck disable=SC2086
load "$what" "$calls" $talks
callgrind_control --instr=off "$server" >/dev/null 2>&1
callgrind_control --dump "$server" >/dev/null 2>&1
counted=$(ls "$folder"/calls.* | tail -1)
[ -z "${KEEP:-}" ] || cp "$counted" "$KEEP"

mkdir -p docs/performance
report=docs/performance/profile-$what.txt
callgrind_annotate --threshold=100 "$counted" | scripts/profile_areas.awk -v calls="$calls" -v what="$what" >"$report"
{ echo; echo "By what they call (inclusive, a function and all below it):"; echo
  callgrind_annotate --inclusive=yes --threshold=100 "$counted" | scripts/profile_areas.awk -v calls="$calls" -v ours=1; } >>"$report"
echo "profile.sh: $report" >&2
