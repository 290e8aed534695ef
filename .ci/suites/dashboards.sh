#!/usr/bin/env bash
# grafana/: the rules and their tests by promtool, the dashboard's style, the metrics of a running server by promtool, and
# that it has every metric named anywhere.
source "$(dirname "$0")/../lib.sh"

# What promtool has against etcd's own names, which are kept.
readonly ODD_NAMES='^(etcd_[a-z_]+_total non-counter metrics should not have "_total" suffix|etcd_server_health_(failures|success) counter metrics should have "_total" suffix|etcd_debugging_[a-z_]+_milliseconds use base unit "seconds" instead of "milliseconds")$'

# How often load is put on until Prometheus has seen enough of it.
readonly LOADS_MAX=10

if ! have curl curl || ! have python3 python3; then
    skipped "dashboards: no curl or no Python is to be had here"
    finish
    exit
fi
readonly CHECK="python3 tests/dashboards/check.py"

ask() { curl -sS --max-time 30 "http://127.0.0.1:$PORT$1" -d "$2" >/dev/null; }

# A little of everything, so that each labelled metric has a series.
load() {
    local i watch
    curl -sN --max-time 30 "http://127.0.0.1:$PORT/v3/watch" -d '{"create_request":{"key":"AA==","range_end":"AA=="}}' \
        >"$WORK/watch" &
    watch=$!
    for i in $(seq 300); do
        [ -s "$WORK/watch" ] && break
        sleep 0.1
    done
    for i in $(seq 50); do
        ask /v3/kv/put "{\"key\":\"$(printf 'key-%02d' "$i" | base64)\",\"value\":\"dmFsdWU=\"}"
    done
    ask /v3/kv/range '{"key":"AA==","range_end":"AA=="}'
    ask /v3/kv/txn '{"success":[{"request_put":{"key":"Zm9v","value":"YmFy"}}]}'
    ask /v3/kv/deleterange '{"key":"Zm9v"}'
    ask /v3/lease/grant '{"TTL":"60","ID":"7"}'
    ask /v3/lease/keepalive '{"ID":"7"}'
    ask /v3/lease/revoke '{"ID":"7"}'
    ask /v3/lease/revoke '{"ID":"7"}'
    ask /v3/kv/compaction '{"revision":"20","physical":true}'
    ask /v3/maintenance/defragment '{}'
    curl -sS "http://127.0.0.1:$PORT/health" >/dev/null
    for i in $(seq 300); do
        grep -q '"events"' "$WORK/watch" && break
        sleep 0.1
    done
    kill "$watch"
    # Until the server has noticed that the watch is gone.
    for i in $(seq 300); do
        curl -sS "http://127.0.0.1:$PORT/metrics" >"$WORK/metrics"
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

# A real Prometheus beside the server, with the rules, for a little more than the span that rates are over.
scraped() {
    local port tries status=0
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat >"$WORK/prometheus.yml" <<YAML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["$PWD/grafana/recording.rules.yaml", "$PWD/grafana/alerts.rules.yaml"]
scrape_configs: [{job_name: revgate, static_configs: [{targets: ["127.0.0.1:$PORT"]}]}]
YAML
    prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/prometheus" --log.level=warn \
        --web.listen-address="127.0.0.1:$port" >"$WORK/prometheus.log" 2>&1 &
    PROMETHEUS_PID=$!
    # It has to have seen the server before the load, and what came of it after.
    for tries in $(seq 300); do
        if curl -sS "http://127.0.0.1:$port/api/v1/query?query=up" 2>/dev/null | grep -q '"1"\]'; then break; fi
        sleep 0.1
    done
    for tries in $(seq "$LOADS_MAX"); do
        status=0
        load && $CHECK data "http://127.0.0.1:$port" 20s >"$WORK/asked" || status=$?
        [ "$status" -ne 0 ] || break
    done
    cat "$WORK/asked"
    stop_prometheus
    return "$status"
}

check "dashboard, runbook and tests go by their rules" $CHECK style
start_revgate "$WORK/data"
check "a little load" load
check "every metric named is there" $CHECK metrics "$WORK/metrics"
echo "of etcd's mixin there is not:"
$CHECK mixin "$WORK/metrics"
if have promtool prometheus; then
    check "promtool reads the rules" promtool check rules grafana/recording.rules.yaml grafana/alerts.rules.yaml
    check "every alert fires when it should" promtool test rules grafana/alerts.test.yaml
    check "promtool has nothing new against the metrics" no_complaints
    $CHECK rules >"$WORK/dashboard.rules.yaml"
    check "promtool reads every query of the dashboard" promtool check rules "$WORK/dashboard.rules.yaml"
    check "Prometheus has data for all of it" scraped
else
    skipped "dashboards: promtool is not to be had here; rules and their tests were not run"
fi
check "revgate ended well" stop_revgate
finish
