#!/usr/bin/env bash
# Prints the events of a session until interrupted. If the connection ends, resumes after the last
# event.
#   examples/http/watch.sh SESSION
set -euo pipefail

url=${ANNEAL_HTTP:-http://127.0.0.1:8080}
events="$url/api/agents/${AGENT:-example}/sessions/${1:?which session?}/events?after=0"

last=() # the header with the id of the last event
while true; do
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    case $line in
      id:*) last=(-H "Last-Event-ID: ${line#id: }") ;;
      data:*) printf '%s\n' "${line#data: }" ;;
      '' | :*) ;;
      *) printf '%s\n' "$line" >&2 && exit 1 ;; # a refusal: a problem document in JSON
    esac
  done < <(curl -sS -N "${last[@]+"${last[@]}"}" "$events")
  sleep 1
done
