#!/usr/bin/env bash
# Generates the Python stubs of anneal.v1 from proto/ into the folder STUBS (default target/python,
# which git ignores). Needs the packages of requirements.txt.
set -eu
cd "$(dirname "$0")/../.."
out=${STUBS:-target/python}
mkdir -p "$out"
"${PYTHON:-python3}" -m grpc_tools.protoc --proto_path=proto --python_out="$out" --grpc_python_out="$out" proto/anneal/v1/*.proto
echo "stubs are in $out" >&2
