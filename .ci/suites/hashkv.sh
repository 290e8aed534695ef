#!/usr/bin/env bash
# The same history in a real etcd and in revgate: the same hash of it at every revision that is left. And a snapshot of
# revgate's, in the hands of etcd's offline tool and of bbolt's checker.
source "$(dirname "$0")/../lib.sh"

ETCD_PID=
stop_etcd() {
    [ -n "$ETCD_PID" ] || return 0
    kill -TERM "$ETCD_PID" 2>/dev/null || true
    wait "$ETCD_PID" || true
    ETCD_PID=
}
trap 'stop_etcd; clean_up' EXIT

if ! have curl curl || ! have python3 python3 || ! ETCD=$(.ci/fetch-etcd); then
    skipped "hashkv: no etcd, no curl or no Python is to be had here"
    finish
    exit
fi

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_etcd() {
    ETCD_PORT=$(free_port)
    local peer tries
    peer="http://127.0.0.1:$(free_port)"
    "$ETCD" --data-dir "$WORK/etcd" --listen-client-urls "http://127.0.0.1:$ETCD_PORT" \
        --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" --listen-peer-urls "$peer" \
        --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" >"$WORK/etcd.log" 2>&1 &
    ETCD_PID=$!
    for tries in $(seq 300); do
        if curl -fsS "http://127.0.0.1:$ETCD_PORT/health" 2>/dev/null | grep -q '"true"'; then return 0; fi
        if ! kill -0 "$ETCD_PID" 2>/dev/null; then break; fi
        sleep 0.1
    done
    echo "etcd was not ready after $tries looks; it said:"
    cat "$WORK/etcd.log"
    return 1
}

check "revgate starts" start_revgate "$WORK/data"
check "etcd starts" start_etcd
compare() { python3 tests/interop/same_hash.py "http://127.0.0.1:$ETCD_PORT" "http://127.0.0.1:$PORT"; }
check "the same history has the same hash" compare

readonly BIN="$PWD/target/ci/bin"
go_tool() { (cd tests/interop/etcd && nice go build -trimpath -o "$BIN/$2" "$1"); }
take_snapshot() { python3 tests/interop/take_snapshot.py "http://127.0.0.1:$PORT" "$WORK/snapshot"; }
check "a snapshot has the hash that comes with it" take_snapshot
if have go golang-go && go_tool go.etcd.io/bbolt/cmd/bbolt bbolt && go_tool go.etcd.io/etcd/etcdutl/v3 etcdutl; then
    check "etcdutl snapshot status" "$BIN/etcdutl" --write-out table snapshot status "$WORK/snapshot"
    check "etcdutl snapshot restore" "$BIN/etcdutl" snapshot restore "$WORK/snapshot" --data-dir "$WORK/restored"
    check "bbolt check of what was restored" timeout 60 "$BIN/bbolt" check "$WORK/restored/member/snap/db"
    defragment() { curl -fsS -d '{}' "http://127.0.0.1:$PORT/v3/maintenance/defragment"; }
    check "defragment" defragment
    check "the same hash after it" compare
    check "revgate ends well" stop_revgate
    check "bbolt check of the defragmented file" timeout 60 "$BIN/bbolt" check "$WORK/data/member/snap/db"
else
    skipped "hashkv: etcdutl or bbolt cannot be built here"
fi
finish
