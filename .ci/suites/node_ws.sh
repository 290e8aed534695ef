#!/usr/bin/env bash
# Node's `ws` against revgate: one WebSocket with three watches whose ids the client chose and a request for progress
# every second, cancels, closes, and messages that are malformed. ORIGINAL=1 leaves out what etcd does not do.
source "$(dirname "$0")/../lib.sh"

readonly TESTS=22

modules="$PWD/target/ci/node_ws"
if ! have curl curl || ! have node nodejs || ! have npm npm ||
    ! { mkdir -p "$modules" && cp tests/clients/node_ws/* "$modules" &&
        npm install --prefix "$modules" --no-package-lock --no-audit --no-fund --silent; }; then
    skipped "node_ws: no Node with its package ws is to be had here"
    finish
    exit
fi

start_revgate "$WORK/data"
status=0
REVGATE_ENDPOINT="http://127.0.0.1:$PORT" ORIGINAL="$ORIGINAL" node --test --test-reporter=tap "$modules"/*.test.js |
    tee "$WORK/report" || status=$?
PASSED=$(sed -nE 's/^# pass ([0-9]+)$/\1/p' "$WORK/report")
FAILED=$(sed -nE 's/^# fail ([0-9]+)$/\1/p' "$WORK/report")
left_out=$(sed -nE 's/^# skipped ([0-9]+)$/\1/p' "$WORK/report")
check "node ended well" test "$status" -eq 0
check "all $TESTS tests were there" test "$((PASSED + FAILED + left_out - 1))" -eq "$TESTS"
check "revgate ended well" stop_revgate
finish
