#!/usr/bin/env bash
# grafana/: the rules and their tests by promtool, the dashboard's style, the metrics of a running server by promtool, and
# that it has every metric named anywhere.
source "$(dirname "$0")/../lib.sh"

# What promtool has against etcd's own names, which are kept.
readonly ODD_NAMES='^(etcd_[a-z_]+_total non-counter metrics should not have "_total" suffix|etcd_server_health_(failures|success) counter metrics should have "_total" suffix|etcd_debugging_[a-z_]+_milliseconds use base unit "seconds" instead of "milliseconds")$'

readonly LOAD_SECONDS=120

if ! have curl curl || ! have python3 python3; then
    skipped "dashboards: no curl or no Python is to be had here"
    finish
    exit
fi
readonly CHECK="python3 tests/dashboards/check.py"

# Load for so many seconds; then until the server has noticed that the watches are gone.
# load SECONDS
load() {
    local tries
    python3 tests/dashboards/load.py "http://127.0.0.1:$PORT" "$1" >"$WORK/load" || return 1
    curl -sS "http://127.0.0.1:$PORT/health" >/dev/null
    for tries in $(seq 300); do
        curl -sS "http://127.0.0.1:$PORT/metrics" >"$WORK/metrics"
        grep -q '^etcd_debugging_mvcc_watch_stream_total 0' "$WORK/metrics" &&
            grep -q '^revgate_watch_disconnects_total' "$WORK/metrics" && return
        sleep 0.1
    done
    return 1
}

no_complaints() {
    promtool check metrics <"$WORK/metrics" >"$WORK/complaints" 2>&1 || true
    echo "$(grep -cE "$ODD_NAMES" "$WORK/complaints") complaints are of etcd's own names"
    ! grep -vE "$ODD_NAMES" "$WORK/complaints"
}

PROMETHEUS_PID=
stop_prometheus() {
    [ -n "$PROMETHEUS_PID" ] || return 0
    kill -TERM "$PROMETHEUS_PID" 2>/dev/null || true
    wait "$PROMETHEUS_PID" || true
    PROMETHEUS_PID=
}
trap 'stop_prometheus; clean_up' EXIT

# A real Prometheus beside a server of its own, with the rules, under load for two minutes. Sets PROMETHEUS.
start_prometheus() {
    local port tries
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    PROMETHEUS="http://127.0.0.1:$port"
    cat >"$WORK/prometheus.yml" <<YAML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["$PWD/grafana/recording.rules.yaml", "$PWD/grafana/alerts.rules.yaml"]
scrape_configs: [{job_name: revgate, static_configs: [{targets: ["127.0.0.1:$PORT"]}]}]
YAML
    prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/prometheus" --log.level=warn \
        --web.listen-address="127.0.0.1:$port" >"$WORK/prometheus.log" 2>&1 &
    PROMETHEUS_PID=$!
    # It has to have seen the server before the load.
    for tries in $(seq 300); do
        if curl -sS "$PROMETHEUS/api/v1/query?query=up" 2>/dev/null | grep -q '"1"\]'; then return; fi
        sleep 0.1
    done
    cat "$WORK/prometheus.log"
    return 1
}

# What the dashboard looks like, for whoever reads the README; drawn where it can be.
draw() {
    if ! python_environment dashboards --requirement tests/dashboards/requirements.txt; then
        skipped "the picture of the dashboard: no Python environment with matplotlib is to be had here"
        return
    fi
    mkdir -p target/ci/pictures
    "$PYTHON" tests/dashboards/render.py "$PROMETHEUS" "$LOAD_SECONDS" target/ci/pictures/dashboard.png
}

check "dashboard, runbook and tests go by their rules" $CHECK style
start_revgate "$WORK/data"
check "a little load" load 3
check "every metric named is there" $CHECK metrics "$WORK/metrics"
echo "of etcd's mixin there is not:"
$CHECK mixin "$WORK/metrics"
if have promtool prometheus; then
    check "promtool reads the rules" promtool check rules grafana/recording.rules.yaml grafana/alerts.rules.yaml
    check "every alert fires when it should" promtool test rules grafana/alerts.test.yaml
    check "promtool has nothing new against the metrics" no_complaints
    $CHECK rules >"$WORK/dashboard.rules.yaml"
    check "promtool reads every query of the dashboard" promtool check rules "$WORK/dashboard.rules.yaml"
    stop_revgate
    start_revgate "$WORK/watched"
    check "Prometheus scrapes it" start_prometheus
    check "a load of $LOAD_SECONDS seconds" load "$LOAD_SECONDS"
    check "Prometheus has data for all of it" $CHECK data "$PROMETHEUS" 20s
    check "the dashboard can be drawn, no panel empty" draw
    check "Prometheus' figures are the server's and the load's" \
        python3 tests/dashboards/figures.py "$PROMETHEUS" "http://127.0.0.1:$PORT" "$WORK/load"
    stop_prometheus
else
    skipped "dashboards: promtool is not to be had here; rules and their tests were not run"
fi
check "revgate ended well" stop_revgate
finish
