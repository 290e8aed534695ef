#!/usr/bin/env python3
"""Moves data between a real etcd and revgate, both ways, and asks both whether it is the same.

interchange.py REVGATE ETCD ETCDUTL. Each check prints a line `ok: ...`; the first that fails ends the program.
KEYS=count sets how many keys there are (10,000).
"""
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from member import Member, Refused, b64, everything

KEYS = int(os.environ.get("KEYS", "10000"))
USER, PASSWORD = "root", "root's own"
READER, READER_PASSWORD = "reader", "reads only"
HASHES = 25
SAMPLES = 40
BUMP = 1_000_000

REVGATE, ETCD, ETCDUTL = sys.argv[1:]


def ok(name, *more):
    print("ok:", name, *more, flush=True)


def expect(name, left, right):
    if left != right:
        raise SystemExit(f"FAILED: {name}\n  {str(left)[:2000]}\n  {str(right)[:2000]}")


def fill(member, seed):
    """Keys with history, deletes, leases, a compaction in the middle, users and roles; auth is on in the end."""
    rng = random.Random(seed)
    name = lambda number: f"/registry/{number % 7}/things/{number:06}"
    value = lambda: base64.b64encode(rng.randbytes(rng.randrange(300))).decode()
    put = lambda number, **more: {"request_put": {"key": b64(name(number)), "value": value(), **more}}
    leases = list(range(101, 131))
    for lease in leases:
        member.call("lease/grant", {"ID": str(lease), "TTL": str(3600 + lease)})
    for start in range(0, KEYS, 50):
        member.call("kv/txn", {"success": [put(number) for number in range(start, min(start + 50, KEYS))]})
    for step in range(1200):
        kind = rng.random()
        number = rng.randrange(KEYS)
        if kind < 0.45:
            member.call("kv/put", put(number)["request_put"])
        elif kind < 0.6:
            member.call("kv/put", put(number, lease=str(rng.choice(leases)))["request_put"])
        elif kind < 0.75:
            member.call("kv/deleterange", {"key": b64(name(number))})
        elif kind < 0.8:
            start = rng.randrange(KEYS)
            member.call("kv/deleterange", {"key": b64(name(start)), "range_end": b64(name(start + 70))})
        else:
            numbers = rng.sample(range(KEYS), 20)
            deletes = [{"request_delete_range": {"key": b64(name(other))}} for other in numbers[:6]]
            member.call("kv/txn", {"success": deletes + [put(other) for other in numbers[6:]]})
        if step == 600:
            at = member.revision() - 150
            member.call("kv/compaction", {"revision": str(at), "physical": True})
    big = base64.b64encode(rng.randbytes(300_000)).decode()
    member.call("kv/put", {"key": b64("/big"), "value": big})
    member.call("kv/put", {"key": b64("/empty"), "value": ""})
    member.call("lease/revoke", {"ID": str(leases.pop())})

    member.call("auth/role/add", {"name": "reads"})
    member.call("auth/role/grant", {"name": "reads", "perm": {
        "permType": "READ", "key": b64("/registry/1/"), "range_end": b64("/registry/10")}})
    member.call("auth/role/add", {"name": "root"})
    for user, password, role in [(USER, PASSWORD, "root"), (READER, READER_PASSWORD, "reads")]:
        member.call("auth/user/add", {"name": user, "password": password})
        member.call("auth/user/grant", {"user": user, "role": role})
    member.call("auth/enable", {})
    member.log_in(USER, PASSWORD)


def kept(member):
    """The first and the last revision that can be read."""
    told = member.call("maintenance/hashkv", {})
    return max(int(told.get("compact_revision", 0)), 1), int(told["hash_revision"])


def same(one, other, what):
    """Whether two members hold the same, as far as clients can tell."""
    first, last = kept(one)
    expect(f"{what}: kept revisions", kept(other), (first, last))
    both = (one, other)

    # At the compact revision itself an etcd may remember the hash from before the compaction.
    hashed = sorted({first + 1 + (last - first - 1) * at // (HASHES - 1) for at in range(HASHES)})
    for at in hashed:
        left, right = (member.call("maintenance/hashkv", {"revision": str(at)})["hash"] for member in both)
        expect(f"{what}: hash at {at}", left, right)
    ok(f"{what}: HashKV is equal at {len(hashed)} revisions from {hashed[0]} to {hashed[-1]}")

    for at in [first, last]:
        expect(f"{what}: everything at {at}", *(everything(member, at) for member in both))
    events = [member.events(first + 1, last) for member in both]
    expect(f"{what}: every change since {first}", *events)
    keys = len(everything(one, last))
    # The state at the first kept revision and every change since make the state at each.
    ok(f"{what}: {keys} keys at {last}, those at {first}, and {len(events[0])} changes between are equal")
    rng = random.Random(5)
    for at in rng.sample(range(first, last + 1), min(SAMPLES, last - first)):
        expect(f"{what}: everything at {at}", *(everything(member, at) for member in both))
    ok(f"{what}: every key is equal at {SAMPLES} sampled revisions between")

    leases = [sorted(lease["ID"] for lease in member.call("lease/leases", {})["leases"]) for member in both]
    expect(f"{what}: leases", *leases)
    hanging = 0
    for lease in leases[0]:
        told = [member.call("lease/timetolive", {"ID": lease, "keys": True}) for member in both]
        facts = [(lease["grantedTTL"], sorted(lease.get("keys", []))) for lease in told]
        expect(f"{what}: lease {lease}", *facts)
        hanging += len(facts[0][1])
        for lease in told:
            if not 0 < int(lease["TTL"]) <= int(lease["grantedTTL"]):
                raise SystemExit(f"FAILED: {what}: {lease}")
    ok(f"{what}: {len(leases[0])} leases with {hanging} keys are equal")

    for path, body in [("auth/user/list", {}), ("auth/role/list", {}), ("auth/role/get", {"role": "reads"}),
                       ("auth/user/get", {"name": READER}), ("auth/status", {})]:
        answers = [{key: value for key, value in member.call(path, body).items() if key != "header"} for member in both]
        expect(f"{what}: {path}", *answers)
    for member in both:
        reader = member.another(READER, READER_PASSWORD)
        mine = {"key": b64("/registry/1/"), "range_end": b64("/registry/10")}
        if int(reader.call("kv/range", {**mine, "count_only": True})["count"]) < 1:
            raise SystemExit(f"FAILED: {what}: the reader finds nothing")
        refused(f"{what}: what is not the reader's", 403, reader, "kv/range", {"key": b64("/empty")})
        refused(f"{what}: a wrong password", 400, member, "auth/authenticate", {"name": READER, "password": "no"})
    ok(f"{what}: users log in with their passwords, and have their rights")


def refused(what, status, member, path, body):
    try:
        member.call(path, body)
    except Refused as refusal:
        expect(what, refusal.status, status)
    else:
        raise SystemExit(f"FAILED: {what}: was not refused")


def run(*command, code=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    if done.returncode != code:
        raise SystemExit(f"FAILED: {command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def same_status(path):
    """The figures of both tools for a file."""
    theirs = json.loads(run(ETCDUTL, "--write-out", "json", "snapshot", "status", path))
    ours = json.loads(run(REVGATE, "snapshot", "status", "--json", path))
    expect(f"status of {path}", {name: ours[name] for name in theirs}, theirs)
    run(REVGATE, "check", path)
    run(REVGATE, "inspect", path)
    json.loads(run(REVGATE, "inspect", "--json", path))
    ok(f"snapshot status is etcdutl's, check finds nothing: {os.path.basename(path)}: {theirs}")


def same_file_hash(path, member, first, last):
    """`etcdutl hashkv` of a copy of a file, since it opens it for writing, and what a member says."""
    copy = path + ".copy"
    shutil.copyfile(path, copy)
    for at in [first + 1, (first + last) // 2, last]:
        told = json.loads(run(ETCDUTL, "--write-out", "json", "hashkv", "--rev", at, copy))
        expect(f"etcdutl hashkv at {at}", told["hash"], member.call("maintenance/hashkv", {"revision": str(at)})["hash"])
    ok(f"etcdutl hashkv of {os.path.basename(path)} is what the member says")


def save(member, path):
    print(run(REVGATE, "snapshot", "save", path, "--endpoint", member.url, "--user", f"{USER}:{PASSWORD}"), end="")
    expect("mode of the file", os.stat(path).st_mode & 0o777, 0o600)
    run(REVGATE, "snapshot", "save", path, "--endpoint", member.url, "--user", f"{USER}:{PASSWORD}", code=1)


def restore_ours(work, path, name, *flags):
    data = os.path.join(work, name)
    print(run(REVGATE, "snapshot", "restore", path, "--data-dir", data, *flags), end="")
    run(REVGATE, "snapshot", "restore", path, "--data-dir", data, *flags, code=1)
    return Member(name, [REVGATE, "serve"], data, own_urls=False).log_in(USER, PASSWORD)


def restore_theirs(work, path, name, *flags):
    data = os.path.join(work, name)
    member = Member(name, [ETCD], data, start=False)
    run(ETCDUTL, "snapshot", "restore", path, "--data-dir", data, "--initial-cluster", member.cluster,
        "--initial-advertise-peer-urls", member.peer_url, *flags)
    return member.start().log_in(USER, PASSWORD)


def etcd_to_revgate(work):
    etcd = Member("etcd", [ETCD], os.path.join(work, "etcd"))
    fill(etcd, 1)
    snapshot = os.path.join(work, "etcd.snapshot")
    save(etcd, snapshot)
    same_status(snapshot)
    revgate = restore_ours(work, snapshot, "from-etcd")
    same(etcd, revgate, "etcd's snapshot in revgate")

    # It goes on from there: the same request makes the same revision in both.
    for member in (etcd, revgate):
        member.call("kv/put", {"key": b64("/after"), "value": b64("1"), "lease": "101"})
        member.call("kv/deleterange", {"key": b64("/big")})
    same(etcd, revgate, "and after more writes to both")
    revgate.stop()
    revgate = Member("again", [REVGATE, "serve"], revgate.data, own_urls=False).log_in(USER, PASSWORD)
    same(etcd, revgate, "and after a restart")

    locked = os.path.join(revgate.data, "member/snap/db")
    if "in use by a running member" not in subprocess.run(
            [REVGATE, "check", locked], capture_output=True, text=True).stderr:
        raise SystemExit("FAILED: a file in use is checked")
    run(REVGATE, "check", locked, code=2)
    etcd.stop()
    bare = os.path.join(etcd.data, "member/snap/db")
    same_status(bare)
    from_bare = restore_ours(work, bare, "from-bare-file")
    same(revgate, from_bare, "etcd's data file in revgate")
    from_bare.stop()

    # And home again.
    snapshot = os.path.join(work, "back.snapshot")
    save(revgate, snapshot)
    same_status(snapshot)
    etcd = restore_theirs(work, snapshot, "back-in-etcd")
    same(revgate, etcd, "and back in an etcd")
    etcd.stop()
    revgate.stop()


def revgate_to_etcd(work):
    revgate = Member("revgate", [REVGATE, "serve"], os.path.join(work, "revgate"))
    fill(revgate, 2)
    snapshot = os.path.join(work, "revgate.snapshot")
    save(revgate, snapshot)
    same_status(snapshot)
    etcd = restore_theirs(work, snapshot, "from-revgate")
    same(revgate, etcd, "revgate's snapshot in etcd")
    for member in (etcd, revgate):
        member.call("kv/put", {"key": b64("/after"), "value": b64("1"), "lease": "101"})
    same(revgate, etcd, "and after more writes to both")
    first, last = kept(revgate)
    etcd.stop()
    revgate.stop()

    bare = os.path.join(revgate.data, "member/snap/db")
    same_status(bare)
    etcd = restore_theirs(work, bare, "from-revgates-file", "--skip-hash-check")
    same_file_hash(bare, etcd, first, last)
    same_file_hash(snapshot, etcd, first, last - 1)
    etcd.stop()
    return snapshot


def bumped(work, snapshot):
    """Revisions that jump ahead, by both tools from the same file."""
    before = json.loads(run(REVGATE, "snapshot", "status", "--json", snapshot))["revision"]
    flags = ["--bump-revision", str(BUMP), "--mark-compacted"]
    run(REVGATE, "snapshot", "restore", snapshot, "--data-dir", os.path.join(work, "no"), *flags[:2], code=2)
    both = [restore_ours(work, snapshot, "bumped-revgate", *flags), restore_theirs(work, snapshot, "bumped-etcd", *flags)]
    for member in both:
        member.wait_compacted(before + BUMP)
        expect("the revision after a jump", member.revision(), before + BUMP)
        told = member.watch_once({"key": "AA==", "range_end": "AA==", "start_revision": str(before)})
        expect("a watch from before the jump", (told["canceled"], told["compact_revision"]), (True, str(before + BUMP)))
        refused("a read from before the jump", 400, member, "kv/range", {"key": b64("/empty"), "revision": str(before)})
        put = member.call("kv/put", {"key": b64("/after"), "value": b64("2")})
        expect("the first revision after a jump", put["header"]["revision"], str(before + BUMP + 1))
    same(*both, "revisions that jumped ahead")
    for member in both:
        member.call("kv/compaction", {"revision": str(before + BUMP + 1), "physical": True})
        member.call("kv/put", {"key": b64("/later"), "value": b64("3")})
    same(*both, "and after the next compaction")
    for member in both:
        member.stop()
    file = os.path.join(both[1].data, "member/snap/db")
    same_status(file)
    member = restore_ours(work, file, "bumped-etcd-in-revgate")
    member.stop()
    ok("a file of etcd's whose revisions jumped ahead opens in revgate")


def main():
    work = tempfile.mkdtemp(prefix="interchange-")
    began = time.monotonic()
    try:
        etcd_to_revgate(work)
        bumped(work, revgate_to_etcd(work))
    finally:
        Member.end_all()
        shutil.rmtree(work, ignore_errors=True)
    print(f"took {time.monotonic() - began:.0f} s")


main()
