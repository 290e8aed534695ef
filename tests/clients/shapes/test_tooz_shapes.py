"""OpenStack's tooz over etcd3gw: 64-bit ids as JSON numbers, version and create compares, `failure` always there."""

import json

from support import b64, call, post, prefix_end

MAX_INT64 = 2**63 - 1


def create(prefix, lease=None, target="CREATE", field="create_revision"):
    put = {"key": b64(prefix), "value": b64("holder")}
    if lease:
        put["lease"] = lease
    compare = {"key": b64(prefix), "result": "EQUAL", "target": target, field: 0}
    return {"compare": [compare], "success": [{"request_put": put}], "failure": []}


def test_a_group_is_made_once(prefix):
    for target, field in (("VERSION", "version"), ("CREATE", "create_revision")):
        key = prefix + target
        assert post("/v3/kv/txn", create(key, target=target, field=field))["succeeded"] is True
        again = post("/v3/kv/txn", create(key, target=target, field=field))
        assert "succeeded" not in again and "responses" not in again


def test_ids_are_numbers_up_to_the_last_bit(prefix):
    assert post("/v3/lease/grant", {"TTL": 60, "ID": MAX_INT64})["ID"] == str(MAX_INT64)
    assert post("/v3/kv/txn", create(prefix, lease=MAX_INT64))["succeeded"] is True
    assert post("/v3/kv/range", {"key": b64(prefix)})["kvs"][0]["lease"] == str(MAX_INT64)
    # One bit less is another lease, and does not exist.
    status, _, text = call("/v3/kv/lease/timetolive", {"ID": MAX_INT64 - 1})
    assert (status, json.loads(text)["TTL"]) == (200, "-1")
    assert post("/v3/lease/keepalive", {"ID": MAX_INT64})["result"]["TTL"] == "60"
    answer = post("/v3/kv/lease/timetolive", {"ID": MAX_INT64, "keys": True})
    assert (answer["grantedTTL"], answer["keys"]) == ("60", [b64(prefix)])
    post("/v3/kv/lease/revoke", {"ID": MAX_INT64})
    assert "kvs" not in post("/v3/kv/range", {"key": b64(prefix)})


def test_a_grant_with_id_0_chooses_one():
    first, second = (post("/v3/lease/grant", {"TTL": 30, "ID": 0}) for _ in range(2))
    assert first["TTL"] == "30" and 0 < int(first["ID"]) <= MAX_INT64
    assert first["ID"] != second["ID"]


def test_a_lock_is_taken_and_given_back(prefix):
    lease = int(post("/v3/lease/grant", {"TTL": 30, "ID": 0})["ID"])
    take = create(prefix, lease=lease)
    take["failure"] = [{"request_range": {"key": b64(prefix)}}]
    assert post("/v3/kv/txn", take)["succeeded"] is True
    refused = post("/v3/kv/txn", take)
    assert refused["responses"][0]["response_range"]["kvs"][0]["value"] == b64("holder")
    compare = {"key": b64(prefix), "result": "EQUAL", "target": "VALUE", "value": b64("holder")}
    give = {"compare": [compare], "success": [{"request_delete_range": {"key": b64(prefix)}}]}
    answer = post("/v3/kv/txn", give)
    assert answer["responses"][0]["response_delete_range"]["deleted"] == "1"
    assert "succeeded" not in post("/v3/kv/txn", give)


def test_members_are_listed_with_orders_as_numbers(prefix):
    for name in "bca":
        post("/v3/kv/put", {"key": b64(prefix + name), "value": b64(name)})
    fields = {"key": b64(prefix), "range_end": b64(prefix_end(prefix)), "sort_order": 1, "sort_target": 2}
    assert [kv["value"] for kv in post("/v3/kv/range", fields)["kvs"]] == [b64(name) for name in "bca"]
    deleted = post("/v3/kv/deleterange", {key: fields[key] for key in ("key", "range_end")})
    assert deleted["deleted"] == "3"
    assert "deleted" not in post("/v3/kv/deleterange", {"key": b64(prefix)})
