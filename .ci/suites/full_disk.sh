#!/usr/bin/env bash
# Members on file systems of a few megabytes that are full, in a namespace of their own where mounting is allowed.
source "$(dirname "$0")/../lib.sh"

if ! unshare --user --map-root-user --mount true 2>/dev/null; then
    skipped "full_disk: file systems cannot be mounted here, not even in a namespace"
    finish
    exit
fi
check "full disks" unshare --user --map-root-user --mount \
    cargo test --locked --test it -- --ignored full_disk --test-threads 1
finish
