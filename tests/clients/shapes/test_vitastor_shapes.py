"""Vitastor's monitor: large transactions in camelCase, with the limits its documentation asks for."""

import json

from support import b64, call, post, prefix_end

OPERATIONS = 20_000


def puts(prefix, count, value="x"):
    return [{"requestPut": {"key": b64(f"{prefix}{number:06}"), "value": b64(value)}} for number in range(count)]


def span(prefix):
    return {"key": b64(prefix), "range_end": b64(prefix_end(prefix))}


def test_a_large_txn_has_one_revision_and_one_answer_for_each(prefix):
    answer = post("/v3/kv/txn", {"success": puts(prefix, OPERATIONS)})
    assert answer["succeeded"] is True
    revision = answer["header"]["revision"]
    assert len(answer["responses"]) == OPERATIONS
    assert {one["response_put"]["header"]["revision"] for one in answer["responses"]} == {revision}
    read = post("/v3/kv/range", span(prefix))
    assert (read["count"], len(read["kvs"])) == (str(OPERATIONS), OPERATIONS)
    assert {kv["mod_revision"] for kv in read["kvs"]} == {revision}


def test_a_large_txn_is_one_event_message_for_a_watch(prefix, chunks):
    _, stream = chunks("/v3/watch", {"create_request": {**span(prefix), "watch_id": 1, "progress_notify": True}})
    assert json.loads(next(stream))["result"]["watch_id"] == "1"
    revision = post("/v3/kv/txn", {"success": puts(prefix, OPERATIONS)})["header"]["revision"]
    result = json.loads(next(stream))["result"]
    assert result["header"]["revision"] == revision
    keys = [event["kv"]["key"] for event in result["events"]]
    assert keys == [b64(f"{prefix}{number:06}") for number in range(OPERATIONS)]


def test_many_compares_guard_many_deletes(prefix):
    count = 2000
    revision = int(post("/v3/kv/txn", {"success": puts(prefix, count)})["header"]["revision"])
    keys = [b64(f"{prefix}{number:06}") for number in range(count)]
    deletes = [{"requestDeleteRange": {"key": key}} for key in keys]

    def guarded(limit):
        compare = [{"target": "MOD", "key": key, "result": "LESS", "mod_revision": str(limit)} for key in keys]
        return post("/v3/kv/txn", {"compare": compare, "success": deletes})

    assert "succeeded" not in guarded(revision)
    done = guarded(revision + 1)
    assert done["succeeded"] is True
    assert [one["response_delete_range"]["deleted"] for one in done["responses"]] == ["1"] * count


def test_a_key_put_twice_is_refused_however_far_apart(prefix):
    twice = [*puts(prefix, OPERATIONS), *puts(prefix, 1)]
    status, _, text = call("/v3/kv/txn", {"success": twice})
    assert (status, json.loads(text)["message"]) == (400, "etcdserver: duplicate key given in txn request")
    assert "kvs" not in post("/v3/kv/range", span(prefix))


def test_its_compares(prefix):
    lease = post("/v3/lease/grant", {"TTL": "120"})["ID"]
    key = b64(prefix)
    state = {"request_put": {"key": key, "value": b64("{}"), "lease": lease}}
    created = post("/v3/kv/txn", {"compare": [{"target": "VERSION", "version": 0, "key": key}], "success": [state]})
    assert created["succeeded"] is True
    kept = {"compare": [{"target": "LEASE", "lease": lease, "key": key}], "success": [state]}
    assert post("/v3/kv/txn", kept)["succeeded"] is True
    mixed = post("/v3/kv/txn", {"success": [{"request_range": {"key": key}}, {"requestRange": {"key": key}}]})
    assert [one["response_range"]["kvs"][0]["version"] for one in mixed["responses"]] == ["2", "2"]
    post("/v3/kv/lease/revoke", {"ID": lease})
    assert "succeeded" not in post("/v3/kv/txn", kept)
