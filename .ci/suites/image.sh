#!/usr/bin/env bash
# The Dockerfile's stages as plain commands: the build as it is written there, then its image's tree, entered as the image's
# user, with nothing in it but the binary and the data directory. IMAGE_BINARY takes one that is built already.
source "$(dirname "$0")/../lib.sh"

readonly IMAGE_BYTES_MAX=30000000
readonly TREE="$WORK/root"

if [ "$(id -u)" -ne 0 ] || ! have curl curl || ! have python3 python3; then
    skipped "image: not root, or no curl or Python is to be had here"
    finish
    exit
fi

# The Dockerfile's RUN, less what only a builder understands, with its output below WORK.
build_stage() {
    python3 - "$WORK/out" <<'PY' >"$WORK/build.sh"
import re
import sys
run = re.search(r"^RUN (.*?[^\\])$", open("Dockerfile").read(), re.MULTILINE | re.DOTALL)[1]
print("set -eu")
print(re.sub(r"--mount=\S+ ", "", run).replace("\\\n", "").strip().replace("/out/", sys.argv[1] + "/"))
PY
    CARGO_TARGET_DIR="$PWD/target/ci/image" sh "$WORK/build.sh"
}

# The last stage's COPYs, and the devices that every container is given: a static binary draws its randomness from one.
image_stage() {
    mkdir -p "$TREE/dev" && mknod -m 0666 "$TREE/dev/null" c 1 3 && mknod -m 0666 "$TREE/dev/random" c 1 8 &&
        mknod -m 0666 "$TREE/dev/urandom" c 1 9 &&
        install -D -m 0755 "$WORK/out/bin/revgate" "$TREE/usr/local/bin/revgate" &&
        cp -a "$WORK/out/data" "$TREE/data" && chown -R 65532:65532 "$TREE/data" && chmod 0755 "$WORK" "$TREE"
}

instruction() { sed -nE "s/^$1 //p" Dockerfile; }
words() { python3 -c 'import json, sys; print(*json.loads(sys.argv[1]))' "$1"; }
is_small() {
    local bytes
    bytes=$(du -s --apparent-size --block-size=1 "$TREE" | cut -f1)
    echo "the image's tree has $bytes bytes"
    [ "$bytes" -lt "$IMAGE_BYTES_MAX" ]
}
has_only_its_own() { [ "$(cd "$TREE" && find . -type f | grep -v '^./data/')" = ./usr/local/bin/revgate ]; }

# What the image would run, as its user, with no environment; only the address is another.
start_image() {
    local command log="$WORK/server.log" tries
    read -ra command <<<"$(words "$(instruction ENTRYPOINT)") $(words "$(instruction CMD)")"
    command=("${command[@]/0.0.0.0:2379/127.0.0.1:0}")
    env -i "$(command -v chroot)" --userspec="$(instruction USER)" "$TREE" "${command[@]}" >"$log" 2>&1 &
    SERVER_PID=$!
    for tries in $(seq 600); do
        PORT=$(sed -nE 's|.*http://127\.0\.0\.1:([1-9][0-9]*).*|\1|p' "$log" | head -n 1)
        if [ -n "$PORT" ] && curl -fsS "http://127.0.0.1:$PORT/readyz" >/dev/null 2>&1; then return 0; fi
        kill -0 "$SERVER_PID" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log"
    return 1
}
write_and_read() {
    curl -fsS "http://127.0.0.1:$PORT/v3/kv/put" -d '{"key":"Zm9v","value":"YmFy"}' >/dev/null &&
        curl -fsS "http://127.0.0.1:$PORT/v3/kv/range" -d '{"key":"Zm9v"}' | grep -q '"value":"YmFy"'
}

# A static binary has to find names without the libraries that a system would have for it: the backup job saves by one.
finds_names() {
    local -a command
    read -ra command <<<"$(words "$(instruction ENTRYPOINT)") snapshot save /data/by-name --endpoint http://kv.test:$PORT"
    mkdir "$TREE/etc" && echo '127.0.0.1 kv.test' >"$TREE/etc/hosts" &&
        env -i "$(command -v chroot)" --userspec="$(instruction USER)" "$TREE" "${command[@]}"
}

if [ -n "${IMAGE_BINARY:-}" ]; then
    install -D "$IMAGE_BINARY" "$WORK/out/bin/revgate"
    mkdir -m 0700 "$WORK/out/data"
else
    check "the build stage" build_stage
fi
check "the image's tree" image_stage
check "the image is small" is_small
check "nothing is in it but the binary and the data directory" has_only_its_own
check "it starts as its user and becomes ready" start_image
check "it writes and reads" write_and_read
check "it ends well" stop_revgate
check "it wrote into its data directory alone" has_only_its_own
# A volume as a cluster gives it: root's, and the group's to write, with what the file system put there.
rm -rf "$TREE/data" && install -d -m 2775 -o root -g 65532 "$TREE/data" && install -d -m 0700 -o root "$TREE/data/lost+found"
check "it starts on a volume that is its group's" start_image
check "it writes and reads there" write_and_read
check "it finds a member by its name" finds_names
check "it ends well there" stop_revgate
finish
