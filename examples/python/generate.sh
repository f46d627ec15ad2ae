#!/usr/bin/env bash
# Makes the Python stubs of anneal.v1 from proto/ into STUBS, target/python unless set, which git ignores. Needs
# requirements.txt installed.
set -eu
cd "$(dirname "$0")/../.."
out=${STUBS:-target/python}
mkdir -p "$out"
"${PYTHON:-python3}" -m grpc_tools.protoc --proto_path=proto --python_out="$out" --grpc_python_out="$out" proto/anneal/v1/*.proto
echo "stubs are in $out" >&2
