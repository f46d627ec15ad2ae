#!/usr/bin/env bash
# Runs one turn over HTTP: sends the message, and prints the events of the answer as they arrive, one
# JSON object on each line. If the connection breaks off, repeats the request up to four times, to get
# the rest of the answer.
#   examples/http/chat.sh "What is a race?" [SESSION]
# REQUEST_ID=… repeats a request: it returns the same answer and stores no second question. Without it
# each run is a separate request.
set -euo pipefail
source "$(dirname "$0")/json.sh"

url=${ANNEAL_HTTP:-http://127.0.0.1:8080}
agent=${AGENT:-example}
message=${1:?what do you want to say?}
session=${2:-}
request=${REQUEST_ID:-$(date +%s)-$$-$RANDOM$RANDOM}

body="{\"message\":$(quoted "$message"),\"requestId\":$(quoted "$request")${session:+,\"sessionId\":$(quoted "$session")}}"
last=() # the header with the id of the last event
for _ in 1 2 3 4 5; do
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    case $line in
      id:*) last=(-H "Last-Event-ID: ${line#id: }") ;;
      data:*) printf '%s\n' "${line#data: }" ;;
      '' | :*) ;;
      *) printf '%s\n' "$line" >&2 && exit 1 ;; # a refusal: a problem document in JSON
    esac
    case $line in
      *'"type":"done"'*) exit 0 ;;
      *'"type":"error"'*) exit 1 ;;
    esac
  done < <(curl -sS -N -H 'Content-Type: application/json' "${last[@]+"${last[@]}"}" -d "$body" "$url/api/agents/$agent/chat")
  sleep 1 # then try again: the request id prevents a second question
done
exit 1
