#!/usr/bin/env bash
# Installs the SDKs whose protocols the server speaks, for their tests and examples, and prints DIR:
# OpenAI's client and Agents SDK for Python in a virtual environment, DIR/python; OpenAI's client for
# JavaScript in DIR/openai, the AI SDK in DIR/ai-sdk. If they are installed already, and no pin has
# changed, it only prints. Without npm it says that the tests of those for JavaScript will fail.
set -eu

die() { echo "sdks.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/sdks.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd -P)
cd "$(dirname "$0")/../examples"

# Whether what is installed in DIR/$1 was made of these files. The file made_of is written last.
is_current() { [ "$(cat "$dir/$1/made_of" 2>/dev/null || true)" = "$(cat "${@:2}" | cksum)" ]; }

install_python() {
    is_current python openai/requirements.txt && return
    command -v python3 >/dev/null || die "needs python3"
    rm -f "$dir/python/made_of"
    python3 -m venv --clear "$dir/python" >&2 || die "python3 could not make a virtual environment (Debian: python3-venv)"
    "$dir/python/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: --no-deps \
        --require-hashes --requirement openai/requirements.txt >&2 || die "pip could not install the SDKs"
    cksum < openai/requirements.txt > "$dir/python/made_of"
}

# Both packages ask for Node 22; they also run on 20.
install_javascript() {
    local files=("$1/package.json" "$1/package-lock.json")
    is_current "$1" "${files[@]}" && return
    rm -rf "${dir:?}/$1"
    mkdir "$dir/$1"
    cp "${files[@]}" "$dir/$1/"
    (cd "$dir/$1" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error >&2) || die "npm could not install $1"
    cat "${files[@]}" | cksum > "$dir/$1/made_of"
}

install_python
if command -v npm >/dev/null; then
    install_javascript openai
    install_javascript ai-sdk
else
    echo "sdks.sh: there is no npm; the tests of the SDKs for JavaScript will fail in the gate" >&2
fi
echo "$dir"
