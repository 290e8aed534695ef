"""etcd3-py: put, range, delete, compaction, and its exceptions, which it makes of `error` and `code`."""

import re

import pytest
from etcd3 import errors
from etcd3.models import RangeRequestSortOrder, RangeRequestSortTarget


def error(exception, call, *args, **kwargs):
    with pytest.raises(exception) as caught:
        call(*args, **kwargs)
    return caught.value.code, caught.value.status


def keys(answer):
    return [kv.key.decode() for kv in answer.kvs or []]


def test_the_version_chooses_the_path_prefix(client):
    # Its `version()` itself knows no field `storage`, which etcd sends since 3.6.
    for version in (client.server_version, client.cluster_version):
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert client.api_prefix == "/v3"
    assert client.health() == "true"


def test_a_put_is_read_back_with_its_revisions(client, prefix):
    first = client.put(prefix + "a", "one").header.revision
    second = client.put(prefix + "a", "two").header.revision
    assert second == first + 1
    answer = client.range(prefix + "a")
    (kv,) = answer.kvs
    assert (kv.key, kv.value) == ((prefix + "a").encode(), b"two")
    assert (kv.create_revision, kv.mod_revision, kv.version) == (first, second, 2)
    assert answer.count == 1
    assert answer.header.revision == second


def test_a_put_gives_the_value_before(client, prefix):
    client.put(prefix + "a", "one")
    assert client.put(prefix + "a", "two", prev_kv=True).prev_kv.value == b"one"


def test_every_byte_is_kept_in_keys_and_values(client, prefix):
    data = bytes(range(256))
    client.put(prefix.encode() + data, data)
    (kv,) = client.range(prefix.encode() + data).kvs
    assert (kv.key, kv.value) == (prefix.encode() + data, data)


def test_an_absent_key_gives_no_kvs_and_no_count(client, prefix):
    answer = client.range(prefix + "absent")
    assert "kvs" not in answer and "count" not in answer


def test_limit_says_more_and_counts_all(client, prefix):
    for name in "cab":
        client.put(prefix + name, name)
    answer = client.range(prefix, prefix=True, limit=2)
    assert (keys(answer), answer.more, answer.count) == ([prefix + "a", prefix + "b"], True, 3)
    answer = client.range(prefix + "a", range_end=prefix + "c")
    assert (keys(answer), "more" in answer) == ([prefix + "a", prefix + "b"], False)


def test_sorting_by_value_and_by_revision(client, prefix):
    for name, value in (("a", "2"), ("b", "3"), ("c", "1")):
        client.put(prefix + name, value)
    by_value = client.range(
        prefix, prefix=True, sort_order=RangeRequestSortOrder.DESCEND, sort_target=RangeRequestSortTarget.VALUE
    )
    assert [kv.value for kv in by_value.kvs] == [b"3", b"2", b"1"]
    by_mod = client.range(
        prefix, prefix=True, sort_order=RangeRequestSortOrder.DESCEND, sort_target=RangeRequestSortTarget.MOD, limit=1
    )
    assert keys(by_mod) == [prefix + "c"]


def test_keys_only_and_count_only(client, prefix):
    for name in "ab":
        client.put(prefix + name, name)
    only = client.range(prefix, prefix=True, keys_only=True)
    assert keys(only) == [prefix + "a", prefix + "b"]
    assert not any("value" in kv for kv in only.kvs)
    count = client.range(prefix, prefix=True, count_only=True)
    assert (count.count, "kvs" in count) == (2, False)


def test_revision_filters(client, prefix):
    revisions = [client.put(prefix + name, name).header.revision for name in "abc"]
    answer = client.range(prefix, prefix=True, min_mod_revision=revisions[1], max_create_revision=revisions[1])
    assert keys(answer) == [prefix + "b"]


def test_a_read_at_an_old_revision(client, prefix):
    old = client.put(prefix + "a", "one").header.revision
    client.put(prefix + "a", "two")
    client.delete_range(prefix + "a")
    assert client.range(prefix + "a", revision=old).kvs[0].value == b"one"
    assert client.range(prefix + "a", serializable=True).kvs is None


def test_a_delete_counts_and_gives_what_was_there(client, prefix):
    for name in "ab":
        client.put(prefix + name, name)
    answer = client.delete_range(prefix, prefix=True, prev_kv=True)
    assert (answer.deleted, [kv.value for kv in answer.prev_kvs]) == (2, [b"a", b"b"])
    again = client.delete_range(prefix, prefix=True)
    assert "deleted" not in again
    assert again.header.revision == answer.header.revision


def test_ignore_value_keeps_it_and_refuses_another(client, prefix):
    client.put(prefix + "a", "kept")
    answer = client.put(prefix + "a", "", ignore_value=True)
    assert client.range(prefix + "a").kvs[0].value == b"kept"
    assert client.range(prefix + "a").kvs[0].mod_revision == answer.header.revision
    assert error(errors.ErrValueProvided, client.put, prefix + "a", "x", ignore_value=True) == (3, 400)
    assert error(errors.ErrKeyNotFound, client.put, prefix + "b", "", ignore_value=True) == (3, 400)


def test_bad_requests_become_the_exceptions_of_their_texts(client, prefix):
    revision = client.put(prefix + "a", "one").header.revision
    assert error(errors.ErrEmptyKey, client.put, "", "value") == (3, 400)
    assert error(errors.ErrEmptyKey, client.range, "") == (3, 400)
    assert error(errors.ErrFutureRev, client.range, prefix + "a", revision=revision + 1000) == (11, 400)
    assert error(errors.ErrFutureRev, client.compact, revision + 1000) == (11, 400)
    assert error(errors.ErrLeaseNotFound, client.put, prefix + "a", "x", lease=4711) == (5, 404)


def test_a_compacted_revision_is_refused(client, prefix):
    old = client.put(prefix + "a", "one").header.revision
    new = client.put(prefix + "a", "two").header.revision
    client.compact(new, physical=True)
    assert error(errors.ErrCompacted, client.range, prefix + "a", revision=old) == (11, 400)
    assert error(errors.ErrCompacted, client.compact, old) == (11, 400)
    assert client.range(prefix + "a", revision=new).kvs[0].value == b"two"


def test_status_and_members(client):
    status = client.status()
    assert status.dbSize > 0 and status.version == client.server_version
    (member,) = client.member_list().members
    assert member.ID == status.leader
    assert member.clientURLs[0].startswith("http")
