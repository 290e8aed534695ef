"""etcd3-py: its own Lock over txn, lease and watch, and the server's lock service."""

import threading

import etcd3
import pytest
from etcd3.stateful.lock import EtcdLockAcquireTimeout
from support import HOST, PORT, WAIT_SECONDS_MAX, until


@pytest.fixture
def other():
    with etcd3.Client(HOST, PORT, timeout=15) as client:
        yield client


def test_a_lock_is_a_key_with_a_lease(client, prefix):
    lock = client.Lock(prefix + "lock", lock_ttl=20)
    lock.acquire()
    assert lock.is_acquired
    (kv,) = client.range(lock.lock_key).kvs
    assert (kv.value, kv.lease) == (lock.uuid, lock.lease.ID)
    lock.release()
    assert not lock.is_acquired
    assert client.range(lock.lock_key).kvs is None


def test_another_gets_the_lock_only_after_the_release(client, other, prefix):
    mine, theirs = client.Lock(prefix + "lock", lock_ttl=20), other.Lock(prefix + "lock", lock_ttl=20)
    mine.acquire()
    assert theirs.acquire(block=False) is None and not theirs.is_acquired
    with pytest.raises(EtcdLockAcquireTimeout):
        theirs.acquire(timeout=0.3)
    got, theirs._watcher = threading.Event(), None
    waiting = threading.Thread(target=lambda: (theirs.acquire(), got.set()), daemon=True)
    waiting.start()
    until(lambda: theirs._watcher is not None and theirs._watcher.start_revision is not None, "the waiter to watch")
    assert not got.is_set()
    mine.release()
    assert got.wait(WAIT_SECONDS_MAX)
    waiting.join()
    assert theirs.is_acquired and not mine.is_acquired
    theirs.release()


def test_a_lock_whose_holder_is_gone_is_free_after_its_lease(client, other, prefix):
    mine, theirs = client.Lock(prefix + "lock", lock_ttl=2), other.Lock(prefix + "lock", lock_ttl=20)
    mine.acquire()
    mine.lease.cancel_keepalive()
    theirs.acquire(timeout=WAIT_SECONDS_MAX)
    assert theirs.is_acquired
    theirs.release()


def test_a_reentrant_lock_counts_its_holders(client, other, prefix):
    first = client.Lock(prefix + "lock", lock_ttl=20, reentrant=etcd3.Lock.PROCESS)
    second = other.Lock(prefix + "lock", lock_ttl=20, reentrant=etcd3.Lock.PROCESS)
    first.acquire()
    second.acquire()
    assert first.holders() == 2
    second.release()
    assert first.holders() == 1


def test_the_lock_service(client, other, prefix):
    name = prefix + "served"
    lease = client.lease_grant(30).ID
    held = client.lock(name, lease=lease)
    key = held.key
    assert key.decode() == f"{name}/{lease:x}"
    assert client.range(key).kvs[0].lease == lease
    second_lease = other.lease_grant(30).ID
    got = []
    waiting = threading.Thread(target=lambda: got.append(other.lock(name, lease=second_lease).key), daemon=True)
    waiting.start()
    until(lambda: client.range(name + "/", prefix=True).count == 2, "the second to queue up")
    assert not got
    client.unlock(key)
    waiting.join(WAIT_SECONDS_MAX)
    assert got == [f"{name}/{second_lease:x}".encode()]
    assert client.range(key).kvs is None
