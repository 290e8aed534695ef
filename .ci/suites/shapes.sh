#!/usr/bin/env bash
# The requests of clients that cannot be run here, played by hand: what lua-resty-etcd (APISIX), tooz (OpenStack),
# Vitastor and Patroni send, and what in the answers they depend on. ORIGINAL=1 leaves out what etcd does not do.
source "$(dirname "$0")/../lib.sh"

readonly TESTS=40

if ! have curl curl || ! python_environment shapes --requirement tests/clients/shapes/requirements.txt; then
    skipped "shapes: no Python environment with its packages is to be had here"
    finish
    exit
fi

# The limits that Vitastor's documentation asks of etcd.
start_revgate "$WORK/data" --max-txn-ops 100000 --max-request-bytes 104857600
run_pytest "$TESTS" tests/clients/shapes
check "revgate ended well" stop_revgate
finish
