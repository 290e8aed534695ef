#!/usr/bin/env bash
# The README's tour, as it is printed: every command in it is answered well.
source "$(dirname "$0")/../lib.sh"

if ! have curl curl; then
    skipped "readme: no curl is to be had here"
    finish
    exit
fi
# The first block of shell after the heading, with the port that is free here.
awk '/^## A tour/ { tour = 1 } tour && /^```sh/ { block = 1; next } block && /^```/ { exit } block' README.md \
    >"$WORK/tour.sh"
check "the README has a tour" grep -q curl "$WORK/tour.sh"
start_revgate "$WORK/data"
sed -i "s/localhost:2379/127.0.0.1:$PORT/" "$WORK/tour.sh"

# In the tour's place of curl: an error status is an error; a watch is hung up on once it has said something.
curl() {
    local status=0 answer
    answer=$(command curl -fsS --max-time 3 "$@") || status=$?
    echo "$answer"
    case " $* " in
    *" -N "*) [ "$status" -eq 28 ] && grep -q '"events"' <<<"$answer" ;;
    *) [ "$status" -eq 0 ] && [ -n "$answer" ] ;;
    esac
}
tour() (
    set -e
    source "$WORK/tour.sh"
)
# Not as a condition, where a failing command inside would be passed over.
status=0
export WORK
set +e
tour
status=$?
set -e
check "the tour goes to its end" test "$status" -eq 0
check "revgate ends well" stop_revgate
finish
