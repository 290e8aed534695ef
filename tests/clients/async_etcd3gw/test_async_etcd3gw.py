"""async-etcd3gw: put, get, txn, lease, watch and lock. It parses each chunk of a stream as one JSON value."""

import asyncio
import contextlib
import functools
import time

import pytest
from async_etcd3gw import AsyncEtcd3Client
from async_etcd3gw.exceptions import AsyncEtcd3Exception, WatchTimedOut
from support import HOST, PORT, WAIT_SECONDS_MAX, b64


def with_client(test):
    """Runs a coroutine with a client in a loop of its own."""

    @functools.wraps(test)
    def run(prefix):
        async def body():
            async with AsyncEtcd3Client(HOST, PORT) as client, asyncio.timeout(4 * WAIT_SECONDS_MAX):
                await test(client, prefix)

        asyncio.run(body())

    del run.__wrapped__  # pytest is to see the signature of `run`
    return run


async def until(condition, what):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not await condition():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS_MAX} s: {what}"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def watching(start):
    events, cancel = await start
    try:
        yield aiter(events)
    finally:
        await cancel()


def told(event):
    return event.get("type", "PUT"), event["kv"]["key"].decode(), event["kv"].get("value")


@with_client
async def test_put_and_get_with_metadata(client, prefix):
    answer = await client.put(prefix + "a", "one", metadata=True)
    ((value, kv),) = await client.get(prefix + "a", metadata=True)
    revision = answer["header"]["revision"]
    assert (value, kv["key"]) == (b"one", (prefix + "a").encode())
    assert (kv["create_revision"], kv["mod_revision"], kv["version"]) == (revision, revision, "1")
    assert await client.get(prefix + "absent") == []


@with_client
async def test_every_byte_is_kept(client, prefix):
    data = bytes(range(256))
    assert await client.put(prefix.encode() + data, data) is True
    assert await client.get(prefix.encode() + data) == [data]
    assert await client.put(prefix + "empty", "") is True
    assert await client.get(prefix + "empty") == [b""]


@with_client
async def test_prefixes_sort_by_number(client, prefix):
    for name, value in (("b", "1"), ("a", "2"), ("c", "3")):
        await client.put(prefix + name, value)
    sorted_ones = await client.get_prefix(prefix, sort_order="descend", sort_target="value")
    assert [value for value, _ in sorted_ones] == [b"3", b"2", b"1"]
    by_create = await client.get_prefix(prefix, sort_order="ascend", sort_target="create")
    assert [kv["key"].decode() for _, kv in by_create] == [prefix + name for name in "bac"]
    everything = {kv["key"] for _, kv in await client.get_all()}
    assert {(prefix + name).encode() for name in "abc"} <= everything


@with_client
async def test_a_delete_says_whether_it_deleted(client, prefix):
    for name in "abc":
        await client.put(prefix + name, "")
    assert await client.delete(prefix + "a") is True
    assert await client.delete(prefix + "a") is False
    answer = await client.delete_prefix(prefix, metadata=True)
    assert answer["deleted"] == "2"
    assert await client.get_prefix(prefix) == []


@with_client
async def test_create_and_replace_happen_once(client, prefix):
    assert await client.create(prefix + "a", "one") is True
    assert await client.create(prefix + "a", "two") is False
    assert await client.replace(prefix + "a", "other", "three") is False
    assert await client.replace(prefix + "a", "one", "three") is True
    assert await client.get(prefix + "a") == [b"three"]


@with_client
async def test_one_of_many_creators_wins(client, prefix):
    results = await asyncio.gather(*(client.create(prefix + "a", str(number)) for number in range(50)))
    assert sum(results) == 1
    assert await client.get(prefix + "a") == [str(results.index(True)).encode()]


@with_client
async def test_a_txn_whose_body_has_no_json_content_type(client, prefix):
    await client.put(prefix + "a", "one")
    answer = await client.transaction(
        {
            "compare": [{"key": b64(prefix + "a"), "result": "EQUAL", "target": "VERSION", "version": 1}],
            "success": [
                {"request_put": {"key": b64(prefix + "b"), "value": b64("new")}},
                {"request_range": {"key": b64(prefix + "a")}},
            ],
            "failure": [],
        }
    )
    put, read = answer["responses"]
    assert answer["succeeded"] is True
    assert put["response_put"]["header"]["revision"] == answer["header"]["revision"]
    assert read["response_range"]["count"] == "1"


@with_client
async def test_a_refusal_is_an_exception(client, prefix):
    with pytest.raises(AsyncEtcd3Exception):
        await client.put("", "value")
    with pytest.raises(AsyncEtcd3Exception):
        await client.get(prefix, revision=10**15)


@with_client
async def test_a_lease_holds_keys_and_is_refreshed(client, prefix):
    lease = await client.lease(ttl=60)
    await client.put(prefix + "a", "", lease=lease)
    assert await client.create(prefix + "b", "", lease=lease) is True
    assert sorted(await lease.keys()) == [(prefix + name).encode() for name in "ab"]
    assert 0 < await lease.ttl() <= 60
    assert await lease.refresh() == 60
    # Its own `revoke` of 0.8 sends nothing.
    await client.post(client.get_url("/kv/lease/revoke"), json={"ID": lease.id})
    assert await client.get_prefix(prefix) == []
    assert await lease.refresh() == -1
    assert await lease.ttl() == -1


@with_client
async def test_a_lease_that_is_not_refreshed_ends(client, prefix):
    lease = await client.lease(ttl=1)
    await client.put(prefix + "a", "", lease=lease)

    async def gone():
        return await client.get(prefix + "a") == []

    await until(gone, "the key of an expired lease to go")
    assert await lease.refresh() == -1


@with_client
async def test_a_watch_sees_what_happens_in_order(client, prefix):
    async with watching(client.watch_prefix(prefix)) as events:
        await client.put(prefix + "a", "1")
        await client.put(prefix[:-1] + "0", "not in the prefix")
        await client.put(prefix + "b", "2")
        await client.delete(prefix + "a")
        assert [told(await anext(events)) for _ in range(3)] == [
            ("PUT", prefix + "a", b"1"),
            ("PUT", prefix + "b", b"2"),
            ("DELETE", prefix + "a", None),
        ]


@with_client
async def test_a_watch_from_a_revision_with_the_values_before(client, prefix):
    start = (await client.put(prefix + "a", "1", metadata=True))["header"]["revision"]
    await client.put(prefix + "a", "2")
    await client.delete(prefix + "a")
    async with watching(client.watch(prefix + "a", start_revision=start, prev_kv=True)) as events:
        befores = [(await anext(events)).get("prev_kv", {}).get("value") for _ in range(3)]
    assert befores == [None, b64("1"), b64("2")]
    async with watching(client.watch(prefix + "a", start_revision=start, filters=["NOPUT"])) as events:
        assert told(await anext(events)) == ("DELETE", prefix + "a", None)


@with_client
async def test_hundreds_of_events_come_one_json_value_for_a_chunk(client, prefix):
    count = 300
    async with watching(client.watch_prefix(prefix)) as events:
        await asyncio.gather(*(client.put(f"{prefix}{number}", "x" * 2000) for number in range(count)))
        seen = [await anext(events) for _ in range(count)]
    revisions = [int(event["kv"]["mod_revision"]) for event in seen]
    assert revisions == sorted(set(revisions)) and len(revisions) == count


@with_client
async def test_watch_once(client, prefix):
    with pytest.raises(WatchTimedOut):
        await client.watch_once(prefix + "a", timeout=0.2)
    start = (await client.put(prefix + "a", "1", metadata=True))["header"]["revision"]
    event = await client.watch_prefix_once(prefix, timeout=WAIT_SECONDS_MAX, start_revision=start)
    assert told(event) == ("PUT", prefix + "a", b"1")


@with_client
async def test_a_lock_has_one_holder(client, prefix):
    mine, theirs = await client.lock(prefix, ttl=30), await client.lock(prefix, ttl=30)
    assert await mine.acquire() is True
    assert await theirs.acquire() is False
    assert (await mine.is_acquired(), await theirs.is_acquired()) == (True, False)
    assert await mine.refresh() == 30
    assert await theirs.release() is False, "only its holder releases it"
    assert await mine.release() is True
    async with theirs:
        assert await theirs.is_acquired()
    assert not await theirs.is_acquired()


@with_client
async def test_a_lock_ends_with_its_lease(client, prefix):
    mine, theirs = await client.lock(prefix, ttl=1), await client.lock(prefix, ttl=30)
    assert await mine.acquire() is True
    await until(theirs.acquire, "the lock to be free")
    assert await mine.is_acquired() is False


@with_client
async def test_status_and_members(client, prefix):
    status = await client.status()
    assert int(status["dbSize"]) > 0
    (member,) = await client.members()
    assert member["ID"] == status["leader"]
