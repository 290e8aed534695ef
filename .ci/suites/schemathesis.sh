#!/usr/bin/env bash
# schemathesis against a running revgate and the document it serves: no answer is a fault of the server, or has a status, a
# media type or a form that the document does not have. One seed, a bounded number of examples.
source "$(dirname "$0")/../lib.sh"

# What each operation that takes a body is asked at least.
readonly EXAMPLES_MIN=50
# For a machine with other work: a fraction of it is needed.
readonly SECONDS_MAX=1100

if ! have curl curl || ! python_environment schemathesis --requirement tests/openapi/requirements.txt; then
    skipped "schemathesis: no Python environment with its packages is to be had here"
    finish
    exit
fi

ask() { curl -sS --max-time 60 "http://127.0.0.1:$PORT$1" -d "$2"; }

start_revgate "$WORK/data"
export SCHEMATHESIS_HOOKS="$PWD/tests/openapi/hooks.py"
export REVGATE_ASKED="$WORK/asked.json"
status=0
timeout "$SECONDS_MAX" "$PYTHON" -m schemathesis.cli --no-color --config-file tests/openapi/schemathesis.toml \
    run "http://127.0.0.1:$PORT/openapi.json" || status=$?
check "schemathesis has nothing to complain of" test "$status" -eq 0

enough() {
    "$PYTHON" - "$REVGATE_ASKED" "$EXAMPLES_MIN" "http://127.0.0.1:$PORT/openapi.json" <<'PY'
import json
import sys
import urllib.request
asked, least, document = json.load(open(sys.argv[1])), int(sys.argv[2]), json.load(urllib.request.urlopen(sys.argv[3]))
posts = [f"POST {path}" for path, methods in document["paths"].items() if "post" in methods]
print(f"{sum(asked.values())} requests, {len(posts)} operations of the API, "
      f"the least asked {min(asked.get(post, 0) for post in posts)} times")
few = [post for post in posts if asked.get(post, 0) < least]
print(*few, sep="\n")
sys.exit(bool(few))
PY
}
check "every operation of the API was asked often enough" enough

# What the run leaves out (tests/openapi/hooks.py says why), by hand.
watch_without_deadline() {
    local watch created= event=
    exec {watch}< <(exec curl -sN --max-time 60 "http://127.0.0.1:$PORT/v3/watch" \
        -d '{"create_request":{"key":"c2NoZW1h"}}')
    local curl=$!
    read -r created <&"$watch" && ask /v3/kv/put '{"key":"c2NoZW1h"}' >&2 && read -r event <&"$watch"
    kill "$curl" 2>/dev/null || true
    exec {watch}<&-
    [[ $created == *'"created":true'* && $event == *'"events":[{"kv":{"key":"c2NoZW1h"'* ]]
}
alarm_raised_and_cleared() {
    local member
    member=$(ask /v3/maintenance/status '{}' | sed -nE 's/.*"member_id":"([0-9]+)".*/\1/p')
    ask /v3/maintenance/alarm "{\"action\":\"ACTIVATE\",\"memberID\":\"$member\",\"alarm\":\"NOSPACE\"}" | grep -q NOSPACE &&
    ask /v3/kv/put '{"key":"c2NoZW1h"}' | grep -q '"code":8' &&
    ask /v3/maintenance/alarm "{\"action\":\"DEACTIVATE\",\"memberID\":\"$member\",\"alarm\":\"NOSPACE\"}" | grep -q header &&
    ask /v3/kv/put '{"key":"c2NoZW1h"}' | grep -q '"revision"'
}
check "a watch without a deadline goes on" watch_without_deadline
check "an alarm is raised and cleared" alarm_raised_and_cleared
check "revgate never panicked" bash -c "! grep -q panicked '$WORK/server.log'"
check "revgate ended well" stop_revgate
finish
