#!/usr/bin/env bash
# Power cuts and faults: the tree, the log, the store and the whole member on a disk that records. REVGATE_CRASH_STATES
# (6000) states a power cut could have left are looked at for each of them (a twentieth for those that start a member),
# and every call fails once in every way. REVGATE_CRASH_SEED decides which states.
source "$(dirname "$0")/../lib.sh"

export REVGATE_CRASH_STATES=${REVGATE_CRASH_STATES:-6000}
export REVGATE_CRASH_SEED=${REVGATE_CRASH_SEED:-4}
readonly TESTS=16

log="$WORK/crash.log"
status=0
cargo test --locked --lib crash:: -- --nocapture >"$log" 2>&1 || status=$?
grep -E '^(bolt|wal|mvcc|member|server): ' "$log" || true
if [ "$status" -ne 0 ]; then tail -n 80 "$log"; fi
check "seed $REVGATE_CRASH_SEED, $REVGATE_CRASH_STATES states" test "$status" -eq 0
check "all of the tests ran" grep -q "^test result: ok. $TESTS passed" "$log"
finish
