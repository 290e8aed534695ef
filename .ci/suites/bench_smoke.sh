#!/usr/bin/env bash
# A short run of the benchmark, so that it does not rot. Its figures mean nothing: the client is a debug build, which is
# there already, where a release build with unwinding would be one more of everything.
source "$(dirname "$0")/../lib.sh"

args=(--revgate "$REVGATE" --rounds 1 --seconds 1 --connections 8 --restart-keys 2000 --compact-revisions 2000)
if etcd=$(.ci/fetch-etcd); then
    args+=(--etcd "$etcd")
else
    skipped "bench_smoke: no etcd is to be had here; revgate is measured alone"
fi
check "benchmark" cargo bench --locked --profile dev --bench gateway -- "${args[@]}"
finish
