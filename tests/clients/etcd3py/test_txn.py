"""etcd3-py: its Txn with every target and every comparison."""

import pytest
from etcd3 import errors


def test_the_success_branch_answers_in_order_at_one_revision(client, prefix):
    before = client.put(prefix + "a", "one").header.revision
    txn = client.Txn()
    txn.If(txn.key(prefix + "a").value == "one")
    txn.Then(txn.put(prefix + "a", "two", prev_kv=True))
    txn.Then(txn.put(prefix + "b", "new"))
    txn.Then(txn.range(prefix, prefix=True))
    txn.Then(txn.delete(prefix + "c"))
    txn.Else(txn.range(prefix + "a"))
    answer = txn.commit()
    assert answer.succeeded
    put, _, read, delete = answer.responses
    assert put.response_put.prev_kv.value == b"one"
    assert [kv.value for kv in read.response_range.kvs] == [b"two", b"new"]
    assert {kv.mod_revision for kv in read.response_range.kvs} == {before + 1}
    assert "deleted" not in delete.response_delete_range
    assert answer.header.revision == before + 1


def test_the_failure_branch(client, prefix):
    client.put(prefix + "a", "one")
    txn = client.Txn()
    txn.If(txn.key(prefix + "a").value == "other")
    txn.Then(txn.delete(prefix + "a"))
    txn.Else(txn.range(prefix + "a"))
    answer = txn.commit()
    assert "succeeded" not in answer
    assert answer.responses[0].response_range.kvs[0].value == b"one"


def test_a_txn_that_writes_nothing_keeps_the_revision(client, prefix):
    before = client.put(prefix + "a", "one").header.revision
    txn = client.Txn()
    txn.Then(txn.range(prefix + "a"))
    assert txn.commit().header.revision == before


def test_every_target_and_comparison(client, prefix):
    lease = client.lease_grant(60).ID
    created = client.put(prefix + "a", "m").header.revision
    modified = client.put(prefix + "a", "n", lease=lease).header.revision

    def holds(*compares):
        txn = client.Txn()
        for compare in compares:
            txn.If(compare)
        return "succeeded" in txn.commit()

    def key():
        return client.Txn().key(prefix + "a")

    assert holds(key().create == created, key().mod == modified, key().version == 2, key().lease == lease)
    assert holds(key().value > "m", key().value < "o", key().value != "m", key().value == "n")
    assert holds(key().mod > created, key().create < modified, key().version != 1, key().lease != 0)
    assert not holds(key().mod < modified)
    assert not holds(key().version == 2, key().value == "m")
    absent = client.Txn().key(prefix + "absent")
    assert holds(absent.create == 0, absent.version == 0, absent.mod == 0)
    assert not holds(absent.value != "x"), "no value compares to an absent key"


def test_a_compare_over_a_prefix_asks_every_key(client, prefix):
    client.put(prefix + "a", "same")
    client.put(prefix + "b", "same")
    for value, expected in (("same", True), ("other", False)):
        txn = client.Txn()
        compare = (txn.key(prefix).value == value).to_compare()
        compare["range_end"] = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        txn.If(compare)
        assert ("succeeded" in txn.commit()) is expected


def test_a_key_is_put_once_and_operations_are_limited(client, prefix):
    txn = client.Txn()
    txn.Then(txn.put(prefix + "a", "1"))
    txn.Then(txn.put(prefix + "a", "2"))
    with pytest.raises(errors.ErrDuplicateKey) as caught:
        txn.commit()
    assert (caught.value.code, caught.value.status) == (3, 400)
    txn = client.Txn()
    for number in range(129):
        txn.Then(txn.put(f"{prefix}{number}", ""))
    with pytest.raises(errors.ErrTooManyOps) as caught:
        txn.commit()
    assert (caught.value.code, caught.value.status) == (3, 400)
    assert client.range(prefix, prefix=True).kvs is None
