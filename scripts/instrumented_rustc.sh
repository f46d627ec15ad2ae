#!/usr/bin/env bash
# rustc with instrumentation for libFuzzer, for the crates of this workspace only
# (RUSTC_WORKSPACE_WRAPPER). The compiled program counts every executed edge between basic blocks
# and reports the operands of comparisons. The flags are those of cargo-fuzz. Build scripts are not
# instrumented, because they run at build time. Calls with -vV or --print compile nothing.
set -eu

for argument in "$@"; do
    case "$argument" in
        build_script_build | -vV | --print) exec "$@" ;;
    esac
done
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0
