#!/usr/bin/env bash
# Lines of shell with curl, jq and base64 against revgate, as people write them. ORIGINAL=1 leaves out what etcd does
# not do.
source "$(dirname "$0")/../lib.sh"

readonly WAIT_SECONDS_MAX=15

if ! have curl curl || ! have jq jq; then
    skipped "curl: no curl or no jq is to be had here"
    finish
    exit
fi

b64() { printf %s "$1" | base64 -w0; }
# `-d` makes the content type that of a form.
call() { curl -sS --max-time "$WAIT_SECONDS_MAX" "$E$1" -d "$2" "${@:3}"; }
put() { call /v3/kv/put "{\"key\":\"$(b64 "$1")\",\"value\":\"$(b64 "$2")\"}"; }
get() { call /v3/kv/range "{\"key\":\"$(b64 "$1")\"}"; }
# The end of a prefix: its last byte plus one.
prefix_end() {
    local last
    printf -v last '\\x%02x' $(($(printf '%d' "'${1: -1}") + 1))
    printf "%s$last" "${1%?}"
}
prefix() { printf '"key":"%s","range_end":"%s"' "$(b64 "$1")" "$(b64 "$(prefix_end "$1")")"; }
is() {
    if [ "$1" = "$2" ]; then return 0; fi
    printf 'expected: %s\nfound:    %s\n' "$2" "$1"
    return 1
}
# Waits until a file has a number of lines.
lines() {
    local end=$((SECONDS + WAIT_SECONDS_MAX))
    until [ "$(wc -l <"$1")" -ge "$2" ]; do
        if [ "$SECONDS" -ge "$end" ]; then
            echo "$1 has not $2 lines after $WAIT_SECONDS_MAX s:"
            cat "$1"
            return 1
        fi
        sleep 0.05
    done
}

put_then_get() {
    local revision
    revision=$(put foo "bar baz" | jq -r .header.revision)
    is "$(get foo | jq -r '.kvs[0].value' | base64 -d)" "bar baz" &&
        is "$(get foo | jq -r '.kvs[0] | "\(.key | @base64d) \(.mod_revision) \(.version)"')" "foo $revision 1"
}

absent_key() {
    is "$(get absent | jq -r '.kvs // [] | length')" 0 && is "$(get absent | jq -r '.count // "0"')" 0
}

binary_value() {
    local body="$WORK/body.json"
    head -c 100000 /dev/urandom >"$WORK/blob"
    # Too long for an argument, and for being sent before the server said "100 Continue".
    jq -n --arg key "$(b64 blob)" --rawfile value <(base64 -w0 "$WORK/blob") '{$key, $value}' >"$body"
    is "$(call /v3/kv/put "@$body" -H 'Expect: 100-continue' -o /dev/null -w '%{http_code}')" 200 &&
        get blob | jq -r '.kvs[0].value' | base64 -d | cmp - "$WORK/blob"
}

unpadded_base64() {
    # URL-safe, and without padding: both come from other tools.
    is "$(call /v3/kv/put '{"key":"cGFkPz8","value":"_-8"}' -o /dev/null -w '%{http_code}')" 200 &&
        is "$(get 'pad??' | jq -r '.kvs[0].value')" "/+8="
}

list_by_prefix() {
    local name
    for name in config/c config/a config/b confirm; do put "$name" "of $name" >/dev/null; done
    is "$(call /v3/kv/range "{$(prefix config/)}" | jq -r '.kvs[] | "\(.key | @base64d)=\(.value | @base64d)"')" \
        "$(printf '%s\n' 'config/a=of config/a' 'config/b=of config/b' 'config/c=of config/c')" &&
        is "$(call /v3/kv/range "{$(prefix config/),\"count_only\":true}" | jq -r .count)" 3 &&
        is "$(call /v3/kv/range "{$(prefix config/),\"keys_only\":true,\"limit\":\"1\"}" | jq -c '[.more, .kvs[0].value]')" \
            '[true,null]' &&
        is "$(call /v3/kv/range "{$(prefix config/),\"sort_order\":\"DESCEND\",\"sort_target\":\"KEY\",\"limit\":1}" |
            jq -r '.kvs[0].key | @base64d')" config/c
}

delete_by_prefix() {
    local name
    for name in old/1 old/2; do put "$name" x >/dev/null; done
    is "$(call /v3/kv/deleterange "{$(prefix old/),\"prev_kv\":true}" | jq -r '"\(.deleted) \(.prev_kvs | length)"')" "2 2" &&
        is "$(call /v3/kv/deleterange "{$(prefix old/)}" | jq -r '.deleted // "0"')" 0
}

create_once() {
    local key txn
    key=$(b64 leader)
    txn="{\"compare\":[{\"key\":\"$key\",\"target\":\"CREATE\",\"create_revision\":\"0\"}],
          \"success\":[{\"request_put\":{\"key\":\"$key\",\"value\":\"$(b64 me)\"}}],
          \"failure\":[{\"request_range\":{\"key\":\"$key\"}}]}"
    is "$(call /v3/kv/txn "$txn" | jq -r '.succeeded // false')" true &&
        is "$(call /v3/kv/txn "$txn" | jq -r '.succeeded // false')" false &&
        is "$(call /v3/kv/txn "$txn" | jq -r '.responses[0].response_range.kvs[0].value | @base64d')" me
}

read_the_past() {
    local revision
    revision=$(put past one | jq -r .header.revision)
    put past two >/dev/null
    is "$(call /v3/kv/range "{\"key\":\"$(b64 past)\",\"revision\":$revision}" | jq -r '.kvs[0].value | @base64d')" one
}

# A 64-bit id goes through jq as text; as a number jq would round it.
lease_life() {
    local id
    id=$(call /v3/lease/grant '{"TTL":600,"ID":9007199254740993}' | jq -r .ID)
    is "$id" 9007199254740993 || return
    call /v3/kv/put "{\"key\":\"$(b64 leased)\",\"lease\":$id}" >/dev/null
    is "$(call /v3/lease/keepalive "{\"ID\":\"$id\"}" | jq -r .result.TTL)" 600 &&
        is "$(call /v3/lease/timetolive "{\"ID\":$id,\"keys\":true}" | jq -r '.keys[0] | @base64d')" leased &&
        is "$(call /v3/lease/leases '{}' | jq -r --arg id "$id" 'any(.leases[]; .ID == $id)')" true &&
        is "$(call /v3/kv/lease/revoke "{\"ID\":\"$id\"}" -o /dev/null -w '%{http_code}')" 200 &&
        is "$(get leased | jq -r '.count // "0"')" 0
}

watch_lines() {
    local out="$WORK/watch" watcher status=0
    : >"$out"
    curl -sN "$E/v3/watch" -d "{\"create_request\":{$(prefix watched/)}}" >"$out" &
    watcher=$!
    {
        lines "$out" 1 && is "$(head -n 1 "$out" | jq -r .result.created)" true &&
            put watched/a one >/dev/null && put watched/b two >/dev/null &&
            call /v3/kv/deleterange "{\"key\":\"$(b64 watched/a)\"}" >/dev/null &&
            lines "$out" 4 &&
            is "$(tail -n +2 "$out" | jq -r '.result.events[] | "\(.type // "PUT") \(.kv.key | @base64d)"')" \
                "$(printf '%s\n' 'PUT watched/a' 'PUT watched/b' 'DELETE watched/a')"
    } || status=1
    kill "$watcher"
    wait "$watcher" || true
    return "$status"
}

# The loop people write: react to each line. `head` ends the watch when it has enough.
watch_history() {
    local first
    first=$(put replay one | jq -r .header.revision)
    put replay two >/dev/null
    is "$(curl -sN --max-time "$WAIT_SECONDS_MAX" "$E/v3/watch" \
        -d "{\"create_request\":{\"key\":\"$(b64 replay)\",\"start_revision\":\"$first\"}}" 2>/dev/null |
        head -n 2 | tail -n 1 | jq -r '.result.events[].kv.value | @base64d')" "$(printf 'one\ntwo')"
}

refusals() {
    is "$(call /v3/kv/put '{}' -w '\n%{http_code}' | tail -n 1)" 400 &&
        is "$(call /v3/kv/put '{}' | jq -r '"\(.code) \(.message)"')" "3 etcdserver: key is not provided" &&
        is "$(call /v3/kv/put '{' | jq -r .code)" 3 &&
        is "$(call /v3/kv/put '{"key":"***"}' -o /dev/null -w '%{http_code}')" 400 &&
        is "$(call /v3/nothing '{}' -w '\n%{http_code}' | tail -n 1)" 404 &&
        is "$(curl -sS "$E/v3/kv/put" | jq -r .code)" 12
}

# With -f a failure is curl's exit status, and with both dialects `.error` is the text.
refusals_for_scripts() {
    local status=0
    curl -fsS "$E/v3/kv/put" -d '{}' >/dev/null 2>&1 || status=$?
    is "$status" 22 && is "$(call /v3/kv/put '{}' | jq -r .error)" "etcdserver: key is not provided"
}

no_body() {
    is "$(curl -sS -X POST "$E/v3/maintenance/status" | jq -r '.version | test("^[0-9]+\\.[0-9]+\\.[0-9]+$")')" true &&
        is "$(call /v3/cluster/member/list '' | jq -r '.members | length')" 1
}

other_ways() {
    is "$(call /v3beta/kv/range "{\"key\":\"$(b64 foo)\"}" | jq -r .count)" 1 &&
        is "$(call /v3/kv/range "{\"key\":\"$(b64 foo)\"}" --http1.0 | jq -r .count)" 1 &&
        is "$(call /v3/kv/range "{\"key\":\"$(b64 foo)\"}" --compressed | jq -r .count)" 1 &&
        is "$(call /v3/kv/range "{\"key\":\"$(b64 foo)\"}" -H 'Transfer-Encoding: chunked' | jq -r .count)" 1
}

# jq with pretty printing, a byte order of fields of its own, and unknown fields.
made_by_jq() {
    is "$(jq -n '{value: ("x" | @base64), comment: {"any": ["thing", null, 1.5e3]}, key: ("jq" | @base64)}' |
        call /v3/kv/put @- -H 'Content-Type: application/json' -o /dev/null -w '%{http_code}')" 200 &&
        is "$(get jq | jq -r '.kvs[0].value | @base64d')" x
}

one_connection() {
    local body
    body="{\"key\":\"$(b64 foo)\"}"
    is "$(curl -sS -o /dev/null -o /dev/null -o /dev/null -w '%{num_connects}\n' -d "$body" \
        "$E/v3/kv/range" "$E/v3/kv/range" "$E/v3/kv/range" | paste -sd ' ')" "1 0 0"
}

side_doors() {
    is "$(curl -fsS "$E/health" | jq -r .health)" true &&
        is "$(curl -fsS "$E/version" | jq -r '[.etcdserver, .etcdcluster] | all(test("^[0-9]+\\.[0-9]+\\.[0-9]+$"))')" true &&
        is "$(curl -fsS "$E/readyz")" ok && is "$(curl -fsS "$E/livez")" ok &&
        is "$(curl -fsS "$E/metrics" | grep -c '^etcd_server_has_leader 1$')" 1
}

backup_and_restore_by_jq() {
    local name
    for name in 1 2 3; do put "backup/$name" "value $name" >/dev/null; done
    call /v3/kv/range "{$(prefix backup/)}" | jq -c '{success: [.kvs[] | {request_put: {key, value}}]}' >"$WORK/backup"
    call /v3/kv/deleterange "{$(prefix backup/)}" >/dev/null
    is "$(call /v3/kv/txn "@$WORK/backup" | jq -r '.responses | length')" 3 &&
        is "$(call /v3/kv/range "{$(prefix backup/)}" | jq -r '[.kvs[].value | @base64d] | join(",")')" \
            "value 1,value 2,value 3"
}

start_revgate "$WORK/data"
E="http://127.0.0.1:$PORT"
check "a value is put and read back" put_then_get
check "an absent key" absent_key
check "a binary value from a file" binary_value
check "base64 of other tools" unpadded_base64
check "keys by prefix: list, count, limit, order" list_by_prefix
check "deletion by prefix" delete_by_prefix
check "a key is created once by a txn" create_once
check "a read of the past" read_the_past
check "a lease from grant to revoke" lease_life
check "a watch line by line" watch_lines
check "a watch of history cut by head" watch_history
check "refusals" refusals
[ -n "$ORIGINAL" ] || check "refusals for scripts" refusals_for_scripts
check "no body" no_body
check "other ways to say the same" other_ways
check "a body made by jq" made_by_jq
check "three requests on one connection" one_connection
check "the side endpoints" side_doors
check "backup and restore by jq" backup_and_restore_by_jq
check "revgate ended well" stop_revgate
finish
