"""lua-resty-etcd, which APISIX uses: every field set, camelCase, no content type, lines, and no word `error`."""

import http.client
import json
import threading

import pytest
from conftest import better
from support import HOST, PORT, WAIT_SECONDS_MAX, b64, call, post, prefix_end, until

RANGE = {
    "limit": 0,
    "revision": 0,
    "sort_order": 0,
    "sort_target": 0,
    "serializable": False,
    "keys_only": False,
    "count_only": False,
    "min_mod_revision": 0,
    "max_mod_revision": 0,
    "min_create_revision": 0,
    "max_create_revision": 0,
}


@pytest.mark.parametrize("names", [{}, {"sort_order": "NONE", "sort_target": "KEY"}, {"sort_order": 2, "sort_target": 3}])
def test_a_range_with_every_field(prefix, names):
    for name in "ab":
        post("/v3/kv/put", {"key": b64(prefix + name), "value": b64(name), "lease": 0, "prev_kv": False})
    answer = post("/v3/kv/range", {"key": b64(prefix), "range_end": b64(prefix_end(prefix)), **RANGE, **names})
    values = [kv["value"] for kv in answer["kvs"]]
    assert values == [b64("b"), b64("a")] if names.get("sort_order") == 2 else [b64("a"), b64("b")]
    assert answer["count"] == "2"


def test_a_txn_in_camel_case(prefix):
    put = {"requestPut": {"key": b64(prefix), "value": b64("new"), "prevKv": True}}
    compare = {"key": b64(prefix), "target": "CREATE", "result": "EQUAL", "createRevision": 0}
    read = {"requestRange": {"key": b64(prefix)}}
    first = post("/v3/kv/txn", {"compare": [compare], "success": [put], "failure": [read]})
    assert first["succeeded"] is True and "response_put" in first["responses"][0]
    second = post("/v3/kv/txn", {"compare": [compare], "success": [put], "failure": [read]})
    assert second["responses"][0]["response_range"]["kvs"][0]["value"] == b64("new")
    delete = {"requestDeleteRange": {"key": b64(prefix), "prevKv": True}}
    third = post("/v3/kv/txn", {"success": [delete]})
    assert third["responses"][0]["response_delete_range"]["prev_kvs"][0]["value"] == b64("new")


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain", "application/json"])
def test_any_content_type_or_none(prefix, content_type):
    connection = http.client.HTTPConnection(HOST, PORT, timeout=WAIT_SECONDS_MAX)
    for _ in range(3):
        body = json.dumps({"key": b64(prefix), "value": b64("x")})
        connection.putrequest("POST", "/v3/kv/put", skip_accept_encoding=True)
        if content_type:
            connection.putheader("Content-Type", content_type)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode())
        sock = connection.sock
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Content-Type") == "application/json"
        assert json.loads(answer.read())["header"]["revision"]
        assert connection.sock is sock, "the connection is kept"
    connection.close()


def test_no_answer_that_went_well_has_the_word_error(prefix, chunks):
    lease = post("/v3/lease/grant", {"TTL": 60})["ID"]
    put = {"key": b64(prefix), "value": b64("x"), "lease": lease}
    bodies = {
        "/v3/kv/put": put,
        "/v3/kv/range": {"key": b64(prefix), **RANGE},
        "/v3/kv/txn": {"success": [{"requestPut": put}]},
        "/v3/lease/keepalive": {"ID": lease},
        "/v3/lease/timetolive": {"ID": lease, "keys": True},
        "/v3/lease/leases": {},
        "/v3/maintenance/status": {},
        "/v3/cluster/member/list": {},
        "/v3/kv/lease/revoke": {"ID": lease},
        "/v3/kv/deleterange": {"key": b64(prefix)},
    }
    for path, body in bodies.items():
        status, _, text = call(path, body)
        assert (status, "error" in text.lower()) == (200, False), f"{path}: {text}"
    _, stream = chunks("/v3/watch", {"create_request": {"key": b64(prefix), "start_revision": 1}})
    assert b"error" not in next(stream).lower()


def test_a_prefix_watch_by_lines_has_the_revision_in_each(prefix, chunks):
    fields = {"key": b64(prefix), "range_end": b64(prefix_end(prefix)), "progress_notify": False, "prev_kv": True}
    _, stream = chunks("/v3/watch", {"create_request": {**fields, "start_revision": 0, "filters": []}})
    lines = (line for chunk in stream for line in chunk.decode().splitlines())
    assert json.loads(next(lines))["result"]["created"] is True
    revisions = [post("/v3/kv/put", {"key": b64(prefix), "value": b64(str(n))})["header"]["revision"] for n in range(3)]
    seen = [json.loads(next(lines))["result"] for _ in range(3)]
    assert [one["header"]["revision"] for one in seen] == revisions
    assert [one["events"][0].get("prev_kv", {}).get("value") for one in seen] == [None, b64("0"), b64("1")]


def test_a_compacted_watch_says_cancelled_and_since_when(prefix, chunks):
    start = post("/v3/kv/put", {"key": b64(prefix), "value": b64("1")})["header"]["revision"]
    compacted = post("/v3/kv/put", {"key": b64(prefix), "value": b64("2")})["header"]["revision"]
    post("/v3/kv/compaction", {"revision": compacted})
    _, stream = chunks("/v3/watch", {"create_request": {"key": b64(prefix), "start_revision": start}})
    assert json.loads(next(stream))["result"]["created"] is True
    result = json.loads(next(stream))["result"]
    assert (result["canceled"], result["compact_revision"]) == (True, compacted)


@better
def test_a_stream_that_fails_has_both_dialects(chunks):
    answer, _ = chunks("/v3/watch", b"this is no JSON")
    error = json.loads(answer.data)["error"]
    assert (error["grpc_code"], error["http_code"], error["http_status"], error["code"]) == (3, 400, "Bad Request", 3)
    assert error["message"]


@better
def test_a_call_that_fails_has_both_dialects(prefix):
    status, _, text = call("/v3/kv/range", {"key": b64(prefix), "revision": str(2**62)})
    answer = json.loads(text)
    assert status == 400
    assert answer["error"] == answer["message"] == "etcdserver: mvcc: required revision is a future revision"
    assert answer["code"] == 11


def streams_open():
    _, _, text = call("/metrics", None, method="GET")
    (line,) = [line for line in text.splitlines() if line.startswith("etcd_debugging_mvcc_watch_stream_total ")]
    return float(line.split()[1])


def test_watches_whose_clients_are_gone_are_noticed(prefix):
    """APISIX's workers cut each watch after 50 seconds and come again."""
    before, count = streams_open(), 100
    body = json.dumps({"create_request": {"key": b64(prefix)}})
    connections = [http.client.HTTPConnection(HOST, PORT, timeout=WAIT_SECONDS_MAX) for _ in range(count)]
    for connection in connections:
        connection.request("POST", "/v3/watch", body=body)
    assert all(b'"created":true' in connection.getresponse().readline() for connection in connections)
    assert streams_open() == before + count
    for connection in connections:
        connection.close()
    until(lambda: streams_open() == before, "the server to notice")


def test_many_workers_watch_at_once(prefix, chunks):
    workers, seen = 32, []
    streams = [chunks("/v3/watch", {"create_request": {"key": b64(prefix)}})[1] for _ in range(workers)]
    for stream in streams:
        assert json.loads(next(stream))["result"]["created"] is True
    threads = [threading.Thread(target=lambda s=s: seen.append(json.loads(next(s))), daemon=True) for s in streams]
    for thread in threads:
        thread.start()
    revision = post("/v3/kv/put", {"key": b64(prefix), "value": b64("x")})["header"]["revision"]
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)
    assert [one["result"]["header"]["revision"] for one in seen] == [revision] * workers
