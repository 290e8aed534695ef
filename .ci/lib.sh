# Shared by the suites: where things are, a running revgate, and counting. Sourced, with the project as working directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

REVGATE=${REVGATE:-$PWD/target/release/revgate}
# For suites held against etcd itself, as tests/clients/etcd-as-revgate: ORIGINAL leaves out what etcd does not do, and
# an etcd below 3.6 is ready at /health.
ORIGINAL=${ORIGINAL:-}
READY_PATH=${READY_PATH:-/readyz}
PYTEST_SECONDS_MAX=110
WORK=$(mktemp -d)
SERVER_PID=
PASSED=0
FAILED=0

clean_up() {
    stop_revgate || true
    rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Starts revgate on a data directory and a port of its own; sets PORT.
# start_revgate DATA_DIR FLAGS...
start_revgate() {
    local log="$WORK/server.log" data="$1"
    shift
    "$REVGATE" serve --data-dir "$data" --listen-client-urls http://127.0.0.1:0 "$@" >"$log" 2>&1 &
    SERVER_PID=$!
    local tries
    for tries in $(seq 600); do
        PORT=$(sed -nE 's|.*http://127\.0\.0\.1:([1-9][0-9]*).*|\1|p' "$log" | head -n 1)
        if [ -n "$PORT" ] && curl -fsS "http://127.0.0.1:$PORT$READY_PATH" >/dev/null 2>&1; then return 0; fi
        if ! kill -0 "$SERVER_PID" 2>/dev/null; then break; fi
        sleep 0.1
    done
    echo "revgate was not ready after $tries looks; it said:"
    cat "$log"
    return 1
}

# SIGTERM, and waits for the end.
stop_revgate() {
    [ -n "$SERVER_PID" ] || return 0
    local pid=$SERVER_PID
    SERVER_PID=
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" || [ -n "$ORIGINAL" ] # which ends by the signal
}

skipped() { echo "skipped: $*"; }

# Runs a command as one check.
check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok: $name"
        PASSED=$((PASSED + 1))
    else
        echo "FAILED: $name"
        FAILED=$((FAILED + 1))
    fi
}

# The closing line; to be the last command of a suite.
finish() {
    echo "$PASSED passed, $FAILED failed"
    [ "$FAILED" -eq 0 ]
}

# Whether a command is there, after trying to install the Debian package it is in.
# have COMMAND PACKAGE
have() {
    if command -v "$1" >/dev/null; then return 0; fi
    { apt-get update -q && apt-get install -q -y --no-install-recommends "$2"; } >/dev/null 2>&1 || true
    command -v "$1" >/dev/null
}

# Makes, or takes again, a Python environment below target/ with some packages in it; sets PYTHON.
# python_environment NAME PIP_ARGUMENTS...
python_environment() {
    local dir="$PWD/target/ci/python-$1"
    shift
    have python3 python3 || return 1
    if [ ! -x "$dir/bin/python" ] && ! python3 -m venv "$dir" >/dev/null 2>&1; then
        rm -rf "$dir"
        { apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv; } >/dev/null 2>&1 || return 1
        python3 -m venv "$dir" || return 1
    fi
    PYTHON="$dir/bin/python"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check "$@"
}

# Runs pytest on the server at PORT and adds its counts. A test that skips itself, or is missing, counts as failed.
# run_pytest TESTS PYTEST_ARGUMENTS...
run_pytest() {
    local tests=$1 status=0 report="$WORK/report.xml" ok bad
    shift
    REVGATE_ENDPOINT="http://127.0.0.1:$PORT" ORIGINAL="$ORIGINAL" PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore \
        timeout "$PYTEST_SECONDS_MAX" "$PYTHON" -m pytest -q -p no:cacheprovider --junit-xml "$report" "$@" || status=$?
    if [ ! -e "$report" ]; then
        echo "pytest was stopped, after $PYTEST_SECONDS_MAX s at the latest, before it could report"
        echo '<testsuite tests="0" errors="0" failures="0" skipped="0"/>' >"$report"
    fi
    read -r ok bad < <("$PYTHON" - "$report" "$ORIGINAL" <<'PY'
import sys
import xml.etree.ElementTree as tree
suites = list(tree.parse(sys.argv[1]).iter("testsuite"))
names = ["tests", "errors", "failures"] + ([] if sys.argv[2] else ["skipped"])
total, *bad = (sum(int(suite.get(name)) for suite in suites) for name in names)
print(total - sum(bad), sum(bad))
PY
    )
    if [ "$((ok + bad))" -ne "$tests" ]; then
        echo "expected $tests tests, found $((ok + bad))"
        bad=$((bad + 1))
    fi
    PASSED=$((PASSED + ok))
    FAILED=$((FAILED + bad))
    check "pytest ended well" test "$status" -eq 0
}
