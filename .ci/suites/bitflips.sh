#!/usr/bin/env bash
# Two thousand single bits of a data file flip, one after the other. Whatever is then done to the file ends, reads right or
# is refused with the page's name; see src/server/offline/tests/flips.rs. BITFLIPS and BITFLIPS_SEED choose others.
source "$(dirname "$0")/../lib.sh"

flips() {
    REVGATE_BITFLIPS=${BITFLIPS:-2000} REVGATE_BITFLIPS_SEED=${BITFLIPS_SEED:-4} timeout 1100 \
        cargo test --locked --lib server::offline::tests::flips -- --nocapture | tee "$WORK/flips" &&
        grep -q "^test result: ok. 1 passed" "$WORK/flips"
}
check "a flipped bit is harmless or an error" flips
finish
