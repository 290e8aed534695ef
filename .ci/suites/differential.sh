#!/usr/bin/env bash
# The same requests to a real etcd and to revgate, and the answers compared: tests/differential.
source "$(dirname "$0")/../lib.sh"

if ! have python3 python3 || ! etcd=$(.ci/fetch-etcd); then
    skipped "differential: no etcd, or no Python, is to be had here"
    finish
    exit
fi
case "$etcd" in
*-3.7.*) ;;
*)
    skipped "differential: $etcd is older than the interface that is compared"
    finish
    exit
    ;;
esac
status=0
python3 tests/differential/run.py --etcd "$etcd" --revgate "$REVGATE" | tee "$WORK/log" || status=$?
read -r PASSED FAILED < <(awk '/^[0-9]+ passed, [0-9]+ failed$/ { ok = $1; bad = $3 } END { print ok + 0, bad + 0 }' \
    "$WORK/log")
check "the comparison came to its end" test "$status" -le 1 -a "$PASSED" -gt 0
finish
