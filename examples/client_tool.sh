#!/usr/bin/env bash
# A tool that runs here, by plain HTTP: begins a chat, follows it, and answers its calls. Needs curl, and a server
# (treadle serve) whose address and token are in TREADLE_URL and TREADLE_TOKEN.
set -euo pipefail

call() { # call METHOD PATH [BODY [KEY]]
  curl --silent --show-error --fail-with-body --request "$1" "$TREADLE_URL/api$2" \
    --header "Authorization: Bearer $TREADLE_TOKEN" --header 'Content-Type: application/json' \
    ${4:+--header "Idempotency-Key: $4"} ${3:+--data "$3"}
}
texts() { grep -o "\"$1\":\"[^\"]*\"" | cut -d'"' -f4; } # all strings of this name

chat=$(call POST /chats '{
  "content": "What time is it?",
  "dynamic_tools": [{"name": "clock", "description": "Tells the time.", "input_schema": {"type": "object"}}]
}' | texts id | head -n 1)
echo "chat $chat" >&2

# Every event is one line of data. If the connection breaks, curl is started again behind the last id that came.
last=0
while [ -z "${done:-}" ]; do
  while IFS= read -r line; do
    case $line in
      'id: '*) last=${line#id: } ;;
      *'"type":"assistant.message"'*) texts content <<<"$line" | grep . || true ;;
      *'"type":"session.action_required"'*)
        ids=$(texts tool_call_id <<<"$line")
        results=$(for id in $ids; do printf '{"tool_call_id": "%s", "output": "%s"},' "$id" "$(date +%H:%M)"; done)
        # The key is made from the calls: sent twice, the results count once.
        call POST "/chats/$chat/tool-results" "{\"results\": [${results%,}]}" "$chat-${ids//$'\n'/-}"
        ;;
      *'"type":"session.run_end"'*) done=yes && break ;;
    esac
  done < <(curl --silent --no-buffer "$TREADLE_URL/api/chats/$chat/events" \
    --header "Authorization: Bearer $TREADLE_TOKEN" --header "Last-Event-ID: $last")
  kill "$!" 2>/dev/null || true
done
