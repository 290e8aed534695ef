#!/usr/bin/env bash
# The fuzz targets (FUZZ_TARGETS; all), each for a while (FUZZ_SECONDS; 10), by libFuzzer on the stable toolchain. What they
# find for their corpora is kept below target/; an input that breaks a promise is printed, and kept there too.
source "$(dirname "$0")/../lib.sh"

readonly SECONDS_EACH=${FUZZ_SECONDS:-10}
readonly INPUT_BYTES_MAX=4096
# A longer one is a hang.
readonly INPUT_SECONDS_MAX=25
readonly TARGETS=${FUZZ_TARGETS:-json stream headers socket}

if ! have c++ g++; then
    skipped "fuzz: no C++ compiler is to be had here"
    finish
    exit
fi
triple=$(rustc -vV | sed -n 's/^host: //p')
dir="$PWD/target/ci/fuzz"
export CARGO_TARGET_DIR="$dir/build"
status=0
# Coverage is LLVM's own pass; naming the target keeps it out of build scripts.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --locked --release --manifest-path tests/fuzz/Cargo.toml --target "$triple" || status=$?
check "the targets are built" test "$status" -eq 0

# The requests of the API's document are what bodies and streams begin with.
python3 - "$dir/corpus" <<'PY'
import json
import pathlib
import sys
root = pathlib.Path(sys.argv[1])
for target in ("json", "stream", "headers", "socket"):
    (root / target).mkdir(parents=True, exist_ok=True)
for index, text in enumerate(json.load(open("openapi/operations.json")).values()):
    body = json.dumps(text["request"]).encode()
    (root / "json" / f"seed-{index}").write_bytes(bytes([index]) + body)
    (root / "stream" / f"seed-{index}").write_bytes(bytes([index]) + body + b"\n" + body)
watch = b'{"create_request":{"key":"Zm9v","watch_id":"7"}}'
cancel = b'{"cancel_request":{"watch_id":7}}'
(root / "socket" / "messages").write_bytes(b"\0" + watch + b"\xff" + cancel + b'\xff{"progress_request":{}}')
(root / "socket" / "renewals").write_bytes(b'\2{"ID":"7"}{"ID":8}')
(root / "socket" / "raw").write_bytes(b"\4\x81" + bytes([0x80 | len(cancel)]) + bytes(4) + cancel)
(root / "headers" / "token").write_bytes(b"Bearer abc.5\n100m\ntoken=abc.5\nBearer, abc.5\nabc.5")
(root / "headers" / "jwt").write_bytes(b"eyJhbGciOiJIUzI1NiJ9.eyJ1c2VybmFtZSI6ImEifQ.c2ln\n5S")
PY

fuzz() {
    local target=$1
    # Each target's corpus is its own; a gigabyte is many times what any of them needs.
    (cd "$dir" && "$CARGO_TARGET_DIR/$triple/release/$target" "corpus/$target" -max_total_time="$SECONDS_EACH" \
        -max_len="$INPUT_BYTES_MAX" -timeout="$INPUT_SECONDS_MAX" -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$dir/$target-" -verbosity=1) >"$WORK/$target.log" 2>&1 || {
        tail -n 40 "$WORK/$target.log"
        return 1
    }
    grep -E '^#[0-9]+\s+DONE' "$WORK/$target.log" | tail -n 1
}
for target in $TARGETS; do
    check "$target, $SECONDS_EACH s" fuzz "$target"
done
finish
