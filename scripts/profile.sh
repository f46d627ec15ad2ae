#!/usr/bin/env bash
# Profiles the server: scripts/profile.sh append|context writes docs/performance/profile-append.txt
# (or -context.txt). The report has the instructions of one call by area and by function, counted by
# callgrind while the server handles a fixed number of calls. PostgreSQL and the worker run in a
# separate `anneal dev` and are not counted.
#
# CALLS=1600 sets the number of counted calls. KEEP=FILE keeps callgrind's output, for kcachegrind
# or callgrind_annotate. ANNEAL=/path/to/anneal uses an existing binary with symbols; without it the
# script builds one (profile `profiling`).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH"

die() { echo "profile.sh: $*" >&2; exit 1; }

what=${1:-}
[ "$what" = append ] || [ "$what" = context ] || die "usage: scripts/profile.sh append|context"
scripts/postgres.sh
scripts/debian.sh valgrind
python_dir=$(scripts/python_client.sh .tools/python)
anneal=${ANNEAL:-${CARGO_TARGET_DIR:-target}/profiling/anneal}
[ -n "${ANNEAL:-}" ] || cargo build --locked --profile profiling --package anneal-cli

folder=$(mktemp -d)
chmod 711 "$folder" # if this runs as root, PostgreSQL runs as another user
log=$folder/log
dev='' server=''
finish() { # ends the processes that this script started, the server first, and deletes the folder
    for process in $server $dev; do kill "$process" 2>/dev/null || true; done
    for process in $server $dev; do wait "$process" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT

wait_for_line() { # FILE PATTERN PROCESS: waits for a line that matches, prints its first group
    for _ in $(seq 600); do
        found=$(sed -nE "s|.*$2.*|\\1|p" "$1" | head -1)
        [ -z "$found" ] || { echo "$found"; return; }
        kill -0 "$3" 2>/dev/null || { tail -5 "$1" >&2; die "a process ended before it was ready"; }
        sleep 0.2
    done
    die "$1 has no line that says that the process is ready"
}

"$anneal" --set server.grpc_address=127.0.0.1:0 --set server.http_address=127.0.0.1:0 dev --folder "$folder/dev" >"$log" 2>&1 &
dev=$!
postgres_folder=$(wait_for_line "$log" '  data  +([^ ]+)' "$dev")
database=postgres://postgres:$(cat "$postgres_folder/password")@127.0.0.1:$(cat "$postgres_folder/port")/anneal

ANNEAL_DATABASE_URL=$database valgrind --quiet --tool=callgrind --instr-atstart=no --separate-threads=no \
    --callgrind-out-file="$folder/calls" "$anneal" --set log.format=json \
    --set server.grpc_address=127.0.0.1:0 --set server.http_address=127.0.0.1:0 server >"$log.server" 2>&1 &
server=$!
address=$(wait_for_line "$log.server" '"grpc":"([^"]+)"' "$server")

load() { PYTHONPATH="$python_dir/packages:$python_dir/stubs" python3 scripts/profile_load.py "$address" "$@"; }
calls=${CALLS:-1600}
conversations=$(load prepare)
# shellcheck disable=SC2086 # the ids must be split into words
load "$what" 160 $conversations # a warm-up, which is not counted
callgrind_control --instr=on "$server" >/dev/null 2>&1
# shellcheck disable=SC2086
load "$what" "$calls" $conversations
callgrind_control --instr=off "$server" >/dev/null 2>&1
callgrind_control --dump "$server" >/dev/null 2>&1
counted=$(ls "$folder"/calls.* | tail -1)
[ -z "${KEEP:-}" ] || cp "$counted" "$KEEP"

mkdir -p docs/performance
report=docs/performance/profile-$what.txt
callgrind_annotate --threshold=100 "$counted" | scripts/profile_areas.awk -v calls="$calls" -v what="$what" >"$report"
{ echo; echo "By function, with everything that it calls (inclusive):"; echo
  callgrind_annotate --inclusive=yes --threshold=100 "$counted" | scripts/profile_areas.awk -v calls="$calls" -v ours=1; } >>"$report"
echo "profile.sh: $report" >&2
