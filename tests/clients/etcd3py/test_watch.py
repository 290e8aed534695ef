"""etcd3-py: its Watcher, which parses the stream by braces and goes on at the revision after the last it saw."""

import json
import queue
import socket
import threading

import etcd3
import pytest
from etcd3 import errors
from support import HOST, PORT, WAIT_SECONDS_MAX, b64, until

PUT, DELETE = etcd3.EventType.PUT, etcd3.EventType.DELETE


def take(watcher, count):
    """The next `count` events as (type, key, value), read in this thread."""
    taken = []
    for event in watcher:
        taken.append((event.type, event.key.decode(), event.value))
        if len(taken) == count:
            return taken


def test_history_from_a_revision_on_in_order(client, prefix):
    start = client.put(prefix + "a", "1").header.revision
    client.put(prefix + "a", "2")
    client.put(prefix[:-1] + "0", "not in the prefix")
    client.delete_range(prefix + "a")
    with client.Watcher(prefix, prefix=True, start_revision=start) as watcher:
        events = take(watcher, 3)
    assert events == [(PUT, prefix + "a", b"1"), (PUT, prefix + "a", b"2"), (DELETE, prefix + "a", None)]


def test_new_events_come_while_the_stream_is_open(client, prefix):
    seen = queue.Queue()
    watcher = client.Watcher(prefix, prefix=True)
    watcher.onEvent(lambda event: seen.put((event.type, event.key.decode(), event.header.revision)))
    watcher.runDaemon()
    until(lambda: watcher.start_revision is not None, "the watch to be created")
    first = client.put(prefix + "a", "").header.revision
    assert seen.get(timeout=WAIT_SECONDS_MAX) == (PUT, prefix + "a", first)
    second = client.delete_range(prefix + "a").header.revision
    assert seen.get(timeout=WAIT_SECONDS_MAX) == (DELETE, prefix + "a", second)
    watcher.stop()
    assert not watcher.watching


def test_a_stopped_watcher_goes_on_where_it_was(client, prefix):
    seen = queue.Queue()
    watcher = client.Watcher(prefix, prefix=True)
    watcher.onEvent(f"{prefix}wanted", lambda event: seen.put(event.value))
    watcher.runDaemon()
    until(lambda: watcher.start_revision is not None, "the watch to be created")
    client.put(prefix + "wanted", "before")
    assert seen.get(timeout=WAIT_SECONDS_MAX) == b"before"
    watcher.stop()
    client.put(prefix + "wanted", "meanwhile 1")
    client.put(prefix + "other", "")
    client.put(prefix + "wanted", "meanwhile 2")
    watcher.runDaemon()
    for expected in (b"meanwhile 1", b"meanwhile 2"):
        assert seen.get(timeout=WAIT_SECONDS_MAX) == expected
    watcher.stop()
    assert seen.empty(), "nothing comes twice"


def test_the_value_before_comes_when_asked_for(client, prefix):
    start = client.put(prefix + "a", "1").header.revision
    client.put(prefix + "a", "2")
    client.delete_range(prefix + "a")
    with client.Watcher(prefix + "a", start_revision=start, prev_kv=True) as watcher:
        befores = []
        for event in watcher:
            befores.append(event.prev_kv and event.prev_kv.value)
            if event.type == DELETE:
                break
    assert befores == [None, b"1", b"2"]


def test_filters_at_the_server(client, prefix):
    start = client.put(prefix + "a", "1").header.revision
    client.delete_range(prefix + "a")
    client.put(prefix + "b", "2")
    client.delete_range(prefix + "b")
    with client.Watcher(prefix, prefix=True, start_revision=start, no_put=True) as watcher:
        assert [event[:2] for event in take(watcher, 2)] == [(DELETE, prefix + "a"), (DELETE, prefix + "b")]
    with client.Watcher(prefix, prefix=True, start_revision=start, no_delete=True) as watcher:
        assert [event[:2] for event in take(watcher, 2)] == [(PUT, prefix + "a"), (PUT, prefix + "b")]


def test_the_events_of_a_txn_share_one_answer(client, prefix):
    start = client.put(prefix + "start", "").header.revision + 1
    txn = client.Txn()
    for name in "abc":
        txn.Then(txn.put(prefix + name, name))
    revision = txn.commit().header.revision
    with client.watch_create(prefix, prefix=True, start_revision=start) as stream:
        answers = iter(stream)
        created = next(answers)
        assert created.created and "events" not in created
        events = next(answers).events
    assert [event.kv.value for event in events] == [b"a", b"b", b"c"]
    assert {event.kv.mod_revision for event in events} == {revision}


def test_a_compacted_start_cancels_and_says_where_history_begins(client, prefix):
    start = client.put(prefix + "a", "1").header.revision
    compacted = client.put(prefix + "a", "2").header.revision
    client.compact(compacted)
    with pytest.raises(errors.Etcd3WatchCanceled) as caught:
        with client.Watcher(prefix + "a", start_revision=start) as watcher:
            take(watcher, 1)
    assert caught.value.resp.compact_revision == compacted
    with client.Watcher(prefix + "a", start_revision=compacted) as watcher:
        assert take(watcher, 1) == [(PUT, prefix + "a", b"2")]


def test_watch_once_gives_one_event_or_none(client, prefix):
    assert client.Watcher(prefix + "a", max_retries=0).watch_once(timeout=0.3) is None
    start = client.put(prefix + "a", "1").header.revision
    event = client.Watcher(prefix + "a", start_revision=start, max_retries=0).watch_once(PUT, timeout=WAIT_SECONDS_MAX)
    assert event.value == b"1"


def test_a_large_value_comes_whole(client, prefix):
    value = bytes(range(256)) * 4096
    start = client.put(prefix + "a", value).header.revision
    with client.Watcher(prefix + "a", start_revision=start) as watcher:
        assert take(watcher, 1) == [(PUT, prefix + "a", value)]


def test_a_closed_connection_ends_the_watch_and_serves_others(client, prefix):
    request = json.dumps({"create_request": {"key": b64(prefix)}}).encode()
    for _ in range(20):
        with socket.create_connection((HOST, PORT), timeout=WAIT_SECONDS_MAX) as connection:
            head = f"POST /v3/watch HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(request)}\r\n\r\n"
            connection.sendall(head.encode() + request)
            assert connection.recv(12) == b"HTTP/1.1 200"
    assert client.put(prefix, "").header.revision > 0


def test_many_watchers_see_the_same(client, prefix):
    count = 20
    seen = queue.Queue()
    watchers = [client.Watcher(prefix, prefix=True) for _ in range(count)]
    for watcher in watchers:
        watcher.onEvent(lambda event: seen.put(event.value))
        watcher.runDaemon()
    until(lambda: all(watcher.start_revision is not None for watcher in watchers), "all watches to be created")
    client.put(prefix + "a", "x")
    assert [seen.get(timeout=WAIT_SECONDS_MAX) for _ in range(count)] == [b"x"] * count
    stops = [threading.Thread(target=watcher.stop) for watcher in watchers]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join()
