"""etcd3-py: leases, by single calls and by its Lease, which keeps one alive from a thread."""

import threading

import pytest
from etcd3 import errors
from support import WAIT_SECONDS_MAX, until

MAX_INT64 = 2**63 - 1


def test_a_grant_says_its_time_and_its_keys(client, prefix):
    lease = client.lease_grant(100)
    assert lease.ID > 0 and lease.TTL == 100
    for name in "ab":
        client.put(prefix + name, "", lease=lease.ID)
    left = client.lease_time_to_live(lease.ID, keys=True)
    assert left.ID == lease.ID and left.grantedTTL == 100
    assert 0 < left.TTL <= 100
    assert sorted(left.keys) == [(prefix + name).encode() for name in "ab"]
    assert client.range(prefix + "a").kvs[0].lease == lease.ID
    assert "keys" not in client.lease_time_to_live(lease.ID)


def test_the_greatest_id_is_kept_to_the_last_bit(client):
    assert client.lease_grant(60, ID=MAX_INT64).ID == MAX_INT64
    assert client.lease_time_to_live(MAX_INT64).ID == MAX_INT64
    with pytest.raises(errors.ErrLeaseExist) as caught:
        client.lease_grant(60, ID=MAX_INT64)
    assert caught.value.code == 9
    client.lease_revoke(MAX_INT64)


def test_a_revoke_deletes_the_keys_at_one_revision(client, prefix):
    lease = client.lease_grant(60).ID
    for name in "ab":
        before = client.put(prefix + name, "", lease=lease).header.revision
    assert client.lease_revoke(lease).header.revision == before + 1
    assert client.range(prefix, prefix=True).kvs is None
    with pytest.raises(errors.ErrLeaseNotFound) as caught:
        client.lease_revoke(lease)
    assert (caught.value.code, caught.value.status) == (5, 404)
    assert client.lease_time_to_live(lease).TTL == -1


def test_a_put_without_lease_detaches_and_ignore_lease_keeps(client, prefix):
    lease = client.lease_grant(60).ID
    client.put(prefix + "a", "1", lease=lease)
    client.put(prefix + "a", "2", ignore_lease=True)
    assert client.range(prefix + "a").kvs[0].lease == lease
    client.put(prefix + "a", "3")
    assert "lease" not in client.range(prefix + "a").kvs[0]
    client.lease_revoke(lease)
    assert client.range(prefix + "a").kvs[0].value == b"3"


def test_a_keepalive_gives_the_time_back(client):
    lease = client.Lease(ttl=30)
    lease.grant()
    until(lambda: lease.ttl() < 29, "a second of the lease to pass")
    answer = lease.keepalive_once()
    assert (answer.ID, answer.TTL) == (lease.ID, 30)
    assert lease.ttl() >= 29
    assert lease.alive()
    lease.revoke()
    assert not lease.alive()


def test_a_keepalive_of_an_unknown_lease_has_no_ttl(client):
    answer = client.lease_keep_alive_once(4711)
    assert answer.ID == 4711 and "TTL" not in answer


def test_an_expired_lease_takes_its_key_away(client, prefix):
    lease = client.lease_grant(1)
    client.put(prefix + "a", "", lease=lease.ID)
    until(lambda: client.range(prefix + "a").kvs is None, "the key of an expired lease to go")
    assert client.lease_time_to_live(lease.ID).TTL == -1


def test_the_keeping_thread_holds_a_short_lease(client, prefix):
    keeps = threading.Semaphore(0)
    lease = client.Lease(ttl=2)
    lease.grant()
    client.put(prefix + "a", "", lease=lease.ID)
    lease.keepalive(keep_cb=keeps.release)
    for _ in range(5):
        assert keeps.acquire(timeout=WAIT_SECONDS_MAX)
    assert client.range(prefix + "a").count == 1, "alive although more than its time has passed"
    lease.cancel_keepalive()
    until(lambda: client.range(prefix + "a").kvs is None, "the key of a lease that is kept no more to go")


def test_a_lease_as_context_revokes_at_the_end(client, prefix):
    with client.Lease(ttl=60) as lease:
        client.put(prefix + "a", "", lease=lease.ID)
        inherited = client.Lease(ttl=60, ID=lease.ID, new=False)
        assert 0 < inherited.grant().TTL <= 60
    assert client.range(prefix + "a").kvs is None
