#!/usr/bin/env bash
# The functional suite of etcd3gw, a client of etcd's gateway that others wrote, against revgate: all of its 39 tests.
source "$(dirname "$0")/../lib.sh"

readonly VERSION=2.7.0
readonly TESTS=39

if ! have curl curl || ! python_environment etcd3gw --requirement tests/clients/etcd3gw/requirements.txt; then
    skipped "etcd3gw: no Python environment with its packages is to be had here"
    finish
    exit
fi
sources="$PWD/target/ci/etcd3gw"
if [ ! -d "$sources/etcd3gw-$VERSION" ]; then
    mkdir -p "$sources"
    # The tests are in the source distribution only.
    if ! "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps \
        --no-binary etcd3gw --dest "$sources" "etcd3gw==$VERSION"; then
        skipped "etcd3gw: its source distribution is not to be had here"
        finish
        exit
    fi
    tar -xzf "$sources/etcd3gw-$VERSION.tar.gz" -C "$sources"
fi

start_revgate "$WORK/data"
export TOOZ_TEST_ETCD_PORT=$PORT TOOZ_TEST_HTTP_URL="http://127.0.0.1:$PORT"
run_pytest "$TESTS" --rootdir "$sources/etcd3gw-$VERSION" "$sources/etcd3gw-$VERSION/etcd3gw/tests"
check "revgate ended well" stop_revgate
finish
