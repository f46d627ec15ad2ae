#!/usr/bin/env bash
# Asks the model, which may call a tool that tells the time in a time zone. Runs the calls here, sends
# their results, and prints the events of all turns, one JSON object on each line.
#   examples/http/tools.sh "What time is it in Oslo and in Lima?" [SESSION]
# It gives up when a connection breaks off; chat.sh shows how to resume.
set -euo pipefail
source "$(dirname "$0")/json.sh"

url=${ANNEAL_HTTP:-http://127.0.0.1:8080}
agent=${AGENT:-example}
message=${1:?what do you want to know?}
session=${2:-}

tools='[{"name":"time_in","description":"The time of day in a time zone such as Europe/Oslo",
  "inputSchema":{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"]}}]'
call_id='"id":"(([^"\\]|\\.)*)"'
zone='\\"zone\\": *\\"([A-Za-z_]+(/[A-Za-z_]+)*)\\"' # the input is JSON within a JSON text

result() { # prints the result of a tool_call event: every call gets one
  [[ $1 =~ $call_id ]]
  local id=${BASH_REMATCH[1]}
  if [[ $1 =~ $zone ]]; then
    printf '{"toolUseId":"%s","text":%s}' "$id" "$(quoted "$(TZ=${BASH_REMATCH[1]} date +%H:%M)")"
  else
    printf '{"toolUseId":"%s","text":"no such tool or zone","isError":true}' "$id"
  fi
}

prompt="\"message\":$(quoted "$message")"
for _ in 1 2 3 4 5 6 7 8; do # a model may call tools without end
  body="{$prompt,\"tools\":$tools${session:+,\"sessionId\":$(quoted "$session")}}"
  results='' is_done=''
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    case $line in
      data:*) line=${line#data: } && printf '%s\n' "$line" ;;
      '' | :* | id:*) continue ;;
      *) printf '%s\n' "$line" >&2 && exit 1 ;; # a refusal: a problem document in JSON
    esac
    case $line in
      '{"type":"started"'*) [[ $line =~ \"sessionId\":\"([^\"]+)\" ]] && session=${BASH_REMATCH[1]} ;;
      '{"type":"attempt"'*) results='' ;; # the calls received so far are void
      '{"type":"tool_call"'*) results+=${results:+,}$(result "$line") ;;
      '{"type":"done"'*) is_done=yes ;;
      '{"type":"error"'*) exit 1 ;;
    esac
  done < <(curl -sS -N -H 'Content-Type: application/json' -d "$body" "$url/api/agents/$agent/chat")
  [[ -n $is_done ]] || exit 1
  [[ -n $results ]] || exit 0
  prompt="\"toolResults\":[$results]"
done
exit 1
