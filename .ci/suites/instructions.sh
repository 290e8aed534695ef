#!/usr/bin/env bash
# What single operations cost in instructions, held against benches/instructions/limits.txt. Counted by valgrind, so that
# it does not depend on what else the machine does.
source "$(dirname "$0")/../lib.sh"

if ! have valgrind valgrind; then
    skipped "instructions: valgrind is not to be had here"
    finish
    exit
fi
# As the release was built, which is why only the library is built once more.
cargo build --locked --release --features instructions --bin instructions
counter=target/release/instructions
for operation in $("$counter" --list); do
    check "instructions of $operation" "$counter" "$operation"
done
finish
