#!/usr/bin/env bash
# rustc as libFuzzer wants it, for crates of ours alone (RUSTC_WORKSPACE_WRAPPER): what the program runs is counted, edge by
# edge, and comparisons tell what they compare. The flags are cargo-fuzz's own. Build scripts run at build time and stay plain.
set -eu

for argument in "$@"; do
    case "$argument" in
        build_script_build | -vV | --print) exec "$@" ;;
    esac
done
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0
