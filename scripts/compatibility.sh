#!/usr/bin/env bash
# Checks that the binary of another commit and the current one work on the same database, in both
# directions: each imports conversations, summarizes them, and verifies everything that the other
# has stored.
#
#   scripts/compatibility.sh [COMMIT]        COMMIT: default HEAD~1
#   OTHER=/path/to/anneal scripts/compatibility.sh        compares with this binary
#
# Exit code 0: every verification has succeeded.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$here"
target=${CARGO_TARGET_DIR:-$here/target}
current=$target/debug/anneal
# The check must not use your settings.
for name in $(compgen -e ANNEAL_); do [ "$name" = ANNEAL_PG_BIN ] || unset "$name"; done

dir=$(mktemp -d "${TMPDIR:-/tmp}/anneal-compatibility.XXXXXX")
clean_up() {
    cd "$here"
    [ ! -d "$dir/source" ] || git worktree remove --force "$dir/source"
    rm -rf "$dir"
}
trap clean_up EXIT

cargo build --locked --package anneal-cli
other=${OTHER:-}
if [ -z "$other" ]; then
    git worktree add --quiet --detach "$dir/source" "${1:-HEAD~1}"
    # A folder of its own: crates of two checkouts have the same names.
    (cd "$dir/source" && CARGO_TARGET_DIR="$target/compatibility" cargo build --locked --package anneal-cli)
    other=$target/compatibility/debug/anneal
fi

# Imports the first LINES lines of the sample, and a conversation of two messages. With more lines
# than in the run before, the sample's conversation grows.
run() { # BINARY NAME LINES
    talk=$dir/talk-${2// /-}-$3.jsonl
    head -n "$3" "$here/examples/debugging-session.jsonl" > "$dir/sample.jsonl"
    printf '{"role":"user","content":"asked by %s, %s"}\n{"role":"assistant","content":"answered"}\n' \
        "$2" "$3" > "$talk"
    echo "compatibility: $2 imports the first $3 messages of the sample"
    (cd "$dir" && "$1" dev --once --folder "$dir/data" --import "$dir/sample.jsonl" --import "$talk" \
        --token-threshold 3000 --max-message-count 12 --large-message-threshold 500 --hot-zone-radius 2) > "$dir/log" 2>&1 ||
        { cat "$dir/log"; echo "compatibility: FAILED: $2 does not work on what was stored before"; exit 1; }
    grep -E 'promise|checkpoint' "$dir/log" | tail -3
}

run "$other" "the other commit" 16
run "$current" "the current code" 32
run "$other" "the other commit" 48
run "$current" "the current code" 48
echo "compatibility: both directions work"
