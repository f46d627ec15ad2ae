#!/usr/bin/env bash
# Writes screenshots of every page with real conversations to docs/pictures/ (or the folder given),
# and checks that none is larger than 250 KB. Needs the real conversations (CONTRIBUTING.md).
set -eu

cd "$(dirname "$0")/.."
folder=${1:-docs/pictures}
for package in chromium chromium-driver fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji; do
    scripts/debian.sh "$package"
done
cargo run --locked --quiet --package anneal-testkit --example screenshots -- "$folder"
too_large=$(find "$folder" -name '*.png' -size +250k)
if [ -n "$too_large" ]; then
    echo "screenshots.sh: larger than 250 KB: $too_large" >&2
    exit 1
fi
