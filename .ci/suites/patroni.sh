#!/usr/bin/env bash
# Patroni's own etcd3 module against revgate: agents, without PostgreSQL, initialize a cluster, contend for its leader's
# key, keep it by leases and nested transactions, and see each other through watches.
source "$(dirname "$0")/../lib.sh"

readonly TESTS=21

if ! have curl curl || ! python_environment patroni --requirement tests/clients/patroni/requirements.txt; then
    skipped "patroni: no Python environment with its packages is to be had here"
    finish
    exit
fi

start_revgate "$WORK/data"
# Authentication last: it is switched on for the whole server.
run_pytest "$TESTS" tests/clients/patroni/test_patroni.py tests/clients/patroni/test_patroni_auth.py
check "revgate ended well" stop_revgate
finish
