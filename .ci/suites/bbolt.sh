#!/usr/bin/env bash
# The file revgate leaves, in the hands of the original: bbolt's own checker, and etcd's offline tool. And the tree's
# exchange of files with bbolt, where the module of tests for it is there.
source "$(dirname "$0")/../lib.sh"

if ! have curl curl || ! have go golang-go; then
    skipped "bbolt: no Go or no curl is to be had here"
    finish
    exit
fi
readonly BIN="$PWD/target/ci/bin"
mkdir -p "$BIN"
# go_tool DIRECTORY PACKAGE NAME
go_tool() { (cd "tests/interop/$1" && nice go build -trimpath -o "$BIN/$3" "$2"); }

# Three keys at ten revisions, one of them deleted, after one compaction.
write_something() {
    local number
    for number in $(seq 10); do
        curl -fsS -d "{\"key\":\"a2V5$((number % 3))w==\",\"value\":\"$(printf '%0400d' "$number" | base64 -w0)\"}" \
            "http://127.0.0.1:$PORT/v3/kv/put"
    done
    curl -fsS -d '{"key":"a2V50w=="}' "http://127.0.0.1:$PORT/v3/kv/deleterange"
    curl -fsS -d '{"revision":"6","physical":true}' "http://127.0.0.1:$PORT/v3/kv/compaction"
    curl -fsS -d '{"TTL":"600","ID":"7"}' "http://127.0.0.1:$PORT/v3/lease/grant"
} >/dev/null

# Four megabytes of one key's revisions, of which a compaction leaves the last; then the file is defragmented while it is
# in use, and gives back most of its length.
shrink_something() {
    local number value before
    value=$(head -c 30000 /dev/zero | base64 -w0)
    for number in $(seq 120); do
        curl -fsS -d "{\"key\":\"bGFyZ2U=\",\"value\":\"$value\"}" "http://127.0.0.1:$PORT/v3/kv/put" >/dev/null
    done
    curl -fsS -d '{"revision":"120","physical":true}' "http://127.0.0.1:$PORT/v3/kv/compaction" >/dev/null
    before=$(stat -c %s "$db")
    curl -fsS -d '{}' "http://127.0.0.1:$PORT/v3/maintenance/defragment" >/dev/null
    echo "$before bytes before, $(stat -c %s "$db") bytes after"
    [ "$(stat -c %s "$db")" -lt $((before / 2)) ]
}

if go_tool etcd go.etcd.io/bbolt/cmd/bbolt bbolt; then
    start_revgate "$WORK/data"
    check "revgate takes writes" write_something
    check "revgate ends well" stop_revgate
    db="$WORK/data/member/snap/db"
    check "bbolt check" "$BIN/bbolt" check "$db"
    start_revgate "$WORK/data"
    check "a file in use gives its room back" shrink_something
    kill -KILL "$SERVER_PID"
    wait "$SERVER_PID" 2>/dev/null || true
    SERVER_PID=
    check "bbolt check of a file that gave its room back" "$BIN/bbolt" check "$db"
    start_revgate "$WORK/data"
    check "revgate takes it up again, and ends well" stop_revgate
    check "bbolt check of it with its list of free pages" "$BIN/bbolt" check "$db"
    check "bbolt finds the bucket of keys" "$BIN/bbolt" keys --format hex "$db" key
    for bucket in key meta lease; do
        check "there is a bucket $bucket" grep -qx "$bucket" <("$BIN/bbolt" buckets "$db")
    done
    if go_tool etcd go.etcd.io/etcd/etcdutl/v3 etcdutl; then
        check "etcdutl hashkv" "$BIN/etcdutl" hashkv "$db"
        check "etcdutl status" "$BIN/etcdutl" --write-out table snapshot status "$db"
    else
        skipped "bbolt: etcdutl cannot be built here"
    fi
else
    skipped "bbolt: bbolt's command cannot be built here"
fi

if [ ! -f tests/interop/bolt/go.mod ]; then
    skipped "bbolt: there is no tests/interop/bolt"
elif ! go_tool bolt . interop-bolt; then
    skipped "bbolt: the program of tests/interop/bolt cannot be built here"
else
    # Tests that need that program, and are left out where it is not there.
    exchange() {
        REVGATE_INTEROP_BOLT="$BIN/interop-bolt" cargo test --locked --lib bolt::tests::interop -- --ignored |
            tee "$WORK/exchange" && grep -q '^test result: ok. [1-9]' "$WORK/exchange"
    }
    check "exchange of files with bbolt" exchange
fi
finish
