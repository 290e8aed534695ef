#!/usr/bin/env bash
# Data moves between a real etcd and revgate, both ways, by snapshots and by data files: 10,000 keys with history,
# deletes, leases, users and a compaction. Hashes, keys at every kept revision, leases and users are compared.
source "$(dirname "$0")/../lib.sh"

if ! have python3 python3 || ! have go golang-go || ! ETCD=$(.ci/fetch-etcd); then
    skipped "interchange: no etcd, no Go or no Python is to be had here"
    finish
    exit
fi
readonly BIN="$PWD/target/ci/bin"
if [ ! -x "$BIN/etcdutl" ] &&
    ! (cd tests/interop/etcd && nice go build -trimpath -o "$BIN/etcdutl" go.etcd.io/etcd/etcdutl/v3); then
    skipped "interchange: etcdutl cannot be built here"
    finish
    exit
fi

status=0
PYTHONDONTWRITEBYTECODE=1 timeout 900 python3 tests/interop/interchange.py "$REVGATE" "$ETCD" "$BIN/etcdutl" |
    tee "$WORK/said" || status=$?
PASSED=$(grep -c '^ok: ' "$WORK/said" || true)
check "everything was the same" test "$status" -eq 0
finish
