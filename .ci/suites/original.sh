#!/usr/bin/env bash
# The project's own tests of the interface, run against a real etcd: they demand of revgate nothing that is not so there.
source "$(dirname "$0")/../lib.sh"

if ! ETCD_BINARY=$(.ci/fetch-etcd); then
    skipped "original: no etcd is to be had here"
    finish
    exit
fi
case "$ETCD_BINARY" in
*-3.7.*) ;;
*)
    skipped "original: $ETCD_BINARY is older than the interface the tests describe"
    finish
    exit
    ;;
esac
export ETCD_BINARY
status=0
REVGATE_TEST_BINARY="$PWD/tests/clients/etcd-as-revgate" cargo test --locked --test it -- api:: kill:: startup:: \
    >"$WORK/log" 2>&1 || status=$?
cat "$WORK/log"
read -r PASSED FAILED < <(awk '/^test result:/ { ok += $4; bad += $6 } END { print ok + 0, bad + 0 }' "$WORK/log")
check "tests ended well" test "$status" -eq 0
finish
