#!/usr/bin/env bash
# async-etcd3gw, a client of etcd's gateway on Python's asyncio, against revgate: put, get, txn, lease, watch, lock.
source "$(dirname "$0")/../lib.sh"

readonly TESTS=17

if ! have curl curl ||
    ! python_environment async_etcd3gw --requirement tests/clients/async_etcd3gw/requirements.txt; then
    skipped "async_etcd3gw: no Python environment with its packages is to be had here"
    finish
    exit
fi

start_revgate "$WORK/data"
run_pytest "$TESTS" tests/clients/async_etcd3gw
check "revgate ended well" stop_revgate
finish
