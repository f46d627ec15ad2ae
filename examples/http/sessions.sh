#!/usr/bin/env bash
# Without arguments lists up to 50 sessions of the agent AGENT (default: example). With a session
# prints its history; with a title renames it; with --delete deletes it.
#   examples/http/sessions.sh [SESSION [TITLE|--delete]]
set -euo pipefail
source "$(dirname "$0")/json.sh"

url=${ANNEAL_HTTP:-http://127.0.0.1:8080}
sessions="$url/api/agents/${AGENT:-example}/sessions"

if [[ $# -eq 0 ]]; then
  curl -sS --fail-with-body "$sessions?pageSize=50"
elif [[ $# -eq 1 ]]; then
  curl -sS --fail-with-body "$sessions/$1"
elif [[ $2 == --delete ]]; then
  curl -sS --fail-with-body -X DELETE "$sessions/$1"
else
  curl -sS --fail-with-body -X PATCH -H 'Content-Type: application/json' -d "{\"title\":$(quoted "$2")}" "$sessions/$1"
fi
echo
