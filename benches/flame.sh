#!/usr/bin/env bash
# Flame graphs of where revgate spends its time: puts and gets on 64 connections, and a list of many keys. Writes
# benches/plots/flame-ROW.svg. Needs perf (Debian: linux-perf); inferno is installed below target/ if it is not there.
#
#   benches/flame.sh            these three
#   benches/flame.sh ROW...     others, as `cargo bench --bench gateway -- --help` names them
set -euo pipefail
cd "$(dirname "$0")/.."

readonly INFERNO_VERSION=0.12.8
# Frames that are narrower, in percent, are left out: nobody could see them.
readonly WIDTH_PERCENT_MIN=0.15
readonly BYTES_MAX=300000
readonly tools="$PWD/target/ci/inferno"
readonly profiles="$PWD/target/tmp/profiles"

command -v perf >/dev/null || { echo "perf is missing: install linux-perf" >&2; exit 1; }
if [ ! -x "$tools/bin/inferno-flamegraph" ]; then
    cargo install --quiet --locked --root "$tools" --version "$INFERNO_VERSION" inferno
fi

rows=("$@")
if [ $# -eq 0 ]; then rows=(put-64 get list); fi
rm -rf "$profiles"
cargo bench --locked --bench gateway -- "${rows[@]}" --alone --rounds 1 --seconds 5 --profile "$profiles"
for row in "${rows[@]}"; do
    svg="benches/plots/flame-$row.svg"
    perf script -i "$profiles/$row.data" --no-inline 2>/dev/null |
        sed -E 's/^:[0-9]+ /revgate-worker /' | # threads that were begun meanwhile, whose name perf does not know
        "$tools/bin/inferno-collapse-perf" |
        "$tools/bin/inferno-flamegraph" --minwidth "$WIDTH_PERCENT_MIN" --title "revgate: $row" --hash >"$svg"
    bytes=$(stat -c %s "$svg")
    if [ "$bytes" -gt "$BYTES_MAX" ]; then echo "$svg is big: $bytes bytes" >&2; fi
    echo "$svg"
done
