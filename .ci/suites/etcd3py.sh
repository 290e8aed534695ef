#!/usr/bin/env bash
# etcd3-py, a client of etcd's gateway of 2022 that was written for etcd 3.3 to 3.5, against revgate: key-value calls,
# txn, lease, watch, lock and authentication. It reads the errors of etcd below 3.6, so the original to hold the tests
# against is 3.5:
#   ORIGINAL=1 ETCD_BINARY=<etcd 3.5> REVGATE=tests/clients/etcd-as-revgate READY_PATH=/health .ci/suites/etcd3py.sh
source "$(dirname "$0")/../lib.sh"

readonly TESTS=57

if ! have curl curl || ! python_environment etcd3py --requirement tests/clients/etcd3py/requirements.txt; then
    skipped "etcd3py: no Python environment with its packages is to be had here"
    finish
    exit
fi

start_revgate "$WORK/data"
# Authentication last: it is switched on for the whole server.
run_pytest "$TESTS" tests/clients/etcd3py/test_{kv,txn,lease,watch,lock,auth}.py
check "revgate ended well" stop_revgate
finish
