#!/usr/bin/env bash
# Short runs of the benchmarks, so that they do not rot. Their figures mean nothing: the client is a debug build, which is
# there already, where a release build with unwinding would be one more of everything.
source "$(dirname "$0")/../lib.sh"

targets=(--revgate "$REVGATE")
args=(--rounds 1 --seconds 1 --connections 8 --restart-keys 2000 --compact-revisions 2000)
if etcd=$(.ci/fetch-etcd); then
    targets+=(--etcd "$etcd")
else
    skipped "bench_smoke: no etcd is to be had here; revgate is measured alone"
fi
check "benchmark" cargo bench --locked --profile dev --bench gateway -- "${targets[@]}" "${args[@]}"
args=(--seconds 1 --fan-out 20 --idle 50 --stalled 5 --rate 200 --replays 5 --revisions 2000)
check "benchmark of watches" cargo bench --locked --profile dev --bench watch -- "${targets[@]}" "${args[@]}"
finish
