"""The bytes Patroni depends on: how streams are cut, and the paths in answers that it looks at."""

import json

import pytest
from conftest import better
from support import b64, call, post, prefix_end


def test_versions_are_whole_numbers_with_dots():
    _, headers, text = call("/version", None, method="GET")
    versions = json.loads(text)
    for name in ("etcdserver", "etcdcluster"):
        assert len([int(part) for part in versions[name].split(".")]) == 3
    assert headers["Content-Type"].startswith("application/json")
    assert [int(part) for part in versions["etcdcluster"].split(".")] >= [3, 4, 0]


def test_members_have_urls_for_clients():
    answer = post("/v3/cluster/member/list", {})
    assert all(url.startswith("http") for member in answer["members"] for url in member["clientURLs"])
    for name in ("cluster_id", "member_id", "raft_term"):
        assert int(answer["header"][name]) > 0 and isinstance(answer["header"][name], str)


def test_a_compare_without_result_asks_for_equality(prefix):
    key, value = b64(prefix), b64("one")
    put = {"request_put": {"key": key, "value": value}}
    create = {"compare": [{"target": "CREATE", "create_revision": "0", "key": key}], "success": [put]}
    first = post("/v3/kv/txn", create)
    assert first["succeeded"] is True
    again = post("/v3/kv/txn", create)
    assert "succeeded" not in again and again["header"]["revision"] == first["header"]["revision"]
    for mod, succeeds in ((str(int(first["header"]["revision"]) - 1), None), (first["header"]["revision"], True)):
        txn = {"compare": [{"target": "MOD", "mod_revision": mod, "key": key}], "success": [put]}
        assert post("/v3/kv/txn", txn).get("succeeded") is succeeds


@pytest.mark.parametrize(("before", "outer", "inner"), [("mine", True, None), (None, None, True), ("other", None, None)])
def test_the_nested_txn_of_a_leader(prefix, before, outer, inner):
    lease = post("/v3/lease/grant", {"TTL": 60})["ID"]
    fields = {"key": b64(prefix), "value": b64("mine"), "lease": lease}
    if before:
        post("/v3/kv/put", {"key": b64(prefix), "value": b64(before)})
    put = {"request_put": fields}
    nested = {"compare": [{"key": fields["key"], "target": "CREATE", "create_revision": "0"}], "success": [put]}
    answer = post(
        "/v3/kv/txn",
        {
            "compare": [{"key": fields["key"], "target": "VALUE", "value": fields["value"]}],
            "success": [put],
            "failure": [{"request_txn": nested}],
        },
    )
    assert answer.get("succeeded") is outer
    if not outer:
        assert answer["responses"][0]["response_txn"].get("succeeded") is inner
    holder = post("/v3/kv/range", {"key": fields["key"], "serializable": True})["kvs"][0]
    assert (holder["value"] == fields["value"]) is bool(outer or inner)
    assert holder.get("lease") == (lease if outer or inner else None)


def test_a_keepalive_has_its_time_as_text_or_not_at_all():
    lease = post("/v3/lease/grant", {"TTL": 60})["ID"]
    assert post("/v3/lease/keepalive", {"ID": lease})["result"]["TTL"] == "60"
    post("/v3/lease/revoke", {"ID": lease})
    assert "TTL" not in post("/v3/lease/keepalive", {"ID": lease})["result"]


def test_a_lease_that_is_gone_has_its_text(prefix):
    status, _, text = call("/v3/kv/put", {"key": b64(prefix), "lease": "4711"})
    answer = json.loads(text)
    assert (status, answer["code"], answer["message"]) == (404, 5, "etcdserver: requested lease not found")


def test_a_watch_from_the_revision_of_a_read_repeats_that_revision(prefix, chunks):
    post("/v3/kv/put", {"key": b64(prefix + "a"), "value": b64("x")})
    fields = {"key": b64(prefix), "range_end": b64(prefix_end(prefix))}
    revision = post("/v3/kv/range", {**fields, "serializable": True})["header"]["revision"]
    answer, stream = chunks("/v3/watch", {"create_request": {**fields, "start_revision": revision, "filters": []}})
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert json.loads(next(stream))["result"]["created"] is True
    (event,) = json.loads(next(stream))["result"]["events"]
    assert "type" not in event and event["kv"]["mod_revision"] == revision


# The original cuts a value of more than about 2 KiB into several chunks.
@pytest.mark.parametrize("size", [300, pytest.param(30_000, marks=better)])
def test_each_chunk_is_one_value_with_a_line_end_and_never_compressed(prefix, chunks, size):
    fields = {"key": b64(prefix), "range_end": b64(prefix_end(prefix))}
    answer, stream = chunks("/v3/watch", {"create_request": fields}, {"Accept-Encoding": "gzip, deflate"})
    assert "Content-Encoding" not in answer.headers and "Content-Length" not in answer.headers
    assert next(stream).endswith(b"}\n")
    seen = 0
    for number in range(50):
        post("/v3/kv/put", {"key": b64(f"{prefix}{number}"), "value": b64("x" * size)})
    while seen < 50:
        chunk = next(stream)
        assert chunk.endswith(b"}\n") and chunk.count(b"\n") == 1
        seen += len(json.loads(chunk)["result"]["events"])
    assert seen == 50
