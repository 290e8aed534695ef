#!/usr/bin/env python3
"""Writes one history into two servers and compares their hashes of it.

same_hash.py URL URL. Puts, deletes, txns and leases, compactions in between; the hash is asked for at every revision
that is left. May be run again on servers that have the same history.
"""
import base64
import json
import random
import sys
import urllib.error
import urllib.request

STEPS = 400
COMPACT_EVERY = 90
COMPARE_EVERY = 40


def call(url, path, body):
    request = urllib.request.Request(url + "/v3/" + path, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url} {path} {body}: {error.code} {error.read()!r}") from error


def b64(text):
    return base64.b64encode(text.encode()).decode()


def steps(rng, revision_of):
    """Requests, as (path, body)."""
    key = lambda: b64(f"key{rng.randrange(25):02}")
    put = lambda **more: {"key": key(), "value": b64("v" * rng.randrange(60)), **more}
    for lease in range(1, 6):
        yield "lease/grant", {"ID": str(lease), "TTL": "6000"}
    for step in range(1, STEPS):
        kind = rng.random()
        if kind < 0.5:
            yield "kv/put", put()
        elif kind < 0.6:
            yield "kv/put", put(lease=str(rng.randrange(1, 6)))
        elif kind < 0.75:
            yield "kv/deleterange", {"key": key()}
        elif kind < 0.8:
            start = rng.randrange(20)
            yield "kv/deleterange", {"key": b64(f"key{start:02}"), "range_end": b64(f"key{start + 4:02}")}
        elif kind < 0.82:
            lease = str(rng.randrange(1, 6))
            yield "lease/revoke", {"ID": lease}
            yield "lease/grant", {"ID": lease, "TTL": "6000"}
        else:
            keys = rng.sample(range(25), 3)
            ops = [{"request_put": {"key": b64(f"key{keys[0]:02}"), "value": b64(str(step))}},
                   {"request_delete_range": {"key": b64(f"key{keys[1]:02}")}},
                   {"request_put": {"key": b64(f"key{keys[2]:02}"), "value": ""}}]
            yield "kv/txn", {"success": ops[: rng.randrange(1, 4)]}
        if step % COMPACT_EVERY == 0:
            yield "kv/compaction", {"revision": str(revision_of() - rng.randrange(30)), "physical": True}
    # Nothing is left to be read at the last revisions, and the compact revision is one at which something was.
    yield "kv/put", put()
    yield "kv/compaction", {"revision": str(revision_of() - 1), "physical": True}
    yield "kv/deleterange", {"key": "AA==", "range_end": "AA=="}


def revision(url):
    return int(call(url, "maintenance/status", {})["header"]["revision"])


def compare(urls):
    first = call(urls[0], "maintenance/hashkv", {})
    # At the compact revision itself an etcd remembers the hash from before the compaction, until it is restarted.
    revisions = range(max(int(first["compact_revision"]) + 1, 1), int(first["hash_revision"]) + 1)
    for at in revisions:
        found = [call(url, "maintenance/hashkv", {"revision": str(at)}) for url in urls]
        told = [(one["hash"], one["compact_revision"], one["hash_revision"]) for one in found]
        if told[0] != told[1]:
            raise SystemExit(f"at revision {at}: {told[0]} and {told[1]}")
    return len(revisions)


def main(urls):
    compared = 0
    if revision(urls[0]) == 1:
        for number, (path, body) in enumerate(steps(random.Random(7), lambda: revision(urls[0]))):
            for url in urls:
                call(url, path, body)
            if path == "kv/compaction" or number % COMPARE_EVERY == 0:
                compared += compare(urls)
    compared += compare(urls)
    print(f"{compared} hashes are the same")


main(sys.argv[1:])
