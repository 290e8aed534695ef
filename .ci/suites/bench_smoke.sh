#!/usr/bin/env bash
# Short runs of the benchmark, so that it does not rot. Their figures mean nothing: the client is a debug build, which is
# there already, where a release build with unwinding would be one more of everything.
source "$(dirname "$0")/../lib.sh"

benchmark=(cargo bench --locked --profile dev --bench gateway -- --quick --revgate "$REVGATE" --out "$WORK")
if etcd=$(.ci/fetch-etcd); then
    benchmark+=(--etcd "$etcd")
else
    skipped "bench_smoke: no etcd is to be had here; revgate is measured alone"
    benchmark+=(--alone)
fi

# Whether the report has the machine, every row of the table, and its plots.
report_is_whole() {
    local row plot
    for row in put-1 put-64 put-512 compare-and-put get get-serializable mixed fan-out memory restart list page \
        compaction defragment; do
        grep -q "^| $row " "$WORK/BENCHMARKS.md" || { echo "$row is missing"; return 1; }
    done
    grep -q '^- processor: ' "$WORK/BENCHMARKS.md" || return 1
    for plot in throughput latency fan-out; do
        grep -q '</svg>' "$WORK/plots/$plot.svg" || { echo "$plot.svg is missing"; return 1; }
    done
}

check "the report" "${benchmark[@]}"
check "the report is whole" report_is_whole
check "measurements of their own" "${benchmark[@]}" lists idle stalled replays
finish
