"""A request body that goes on while answers come. Over HTTP/1.1 etcd answers only when the body is at its end."""

import json
import socket

import pytest
from conftest import better
from support import HOST, PORT, WAIT_SECONDS_MAX, b64, post


class Duplex:
    """A POST whose body is sent chunk by chunk; answers are read line by line."""

    def __init__(self, path):
        self.socket = socket.create_connection((HOST, PORT), timeout=WAIT_SECONDS_MAX)
        self.socket.sendall(f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.head_is_read = False

    def send(self, text):
        self.socket.sendall(b"%x\r\n%s\r\n" % (len(text), text.encode()))

    def end_of_body(self):
        self.socket.sendall(b"0\r\n\r\n")

    def result(self):
        """The next answer, which must be one chunk."""
        if not self.head_is_read:
            assert self.file.readline().startswith(b"HTTP/1.1 200")
            while self.file.readline() != b"\r\n":
                pass
            self.head_is_read = True
        chunk = self.file.read(int(self.file.readline(), 16))
        assert self.file.readline() == b"\r\n"
        return json.loads(chunk)["result"]

    def is_at_its_end(self):
        return self.file.readline() == b"0\r\n"


@pytest.fixture
def duplex():
    opened = []

    def make(path):
        opened.append(Duplex(path))
        return opened[-1]

    yield make
    for one in opened:
        one.socket.close()


def create(prefix, watch_id):
    return json.dumps({"create_request": {"key": b64(prefix), "watch_id": watch_id}})


@better
def test_a_second_watch_is_made_on_the_stream_of_the_first(prefix, duplex):
    stream = duplex("/v3/watch")
    for watch_id in (1, 2):
        stream.send(create(prefix, watch_id))
        assert stream.result()["watch_id"] == str(watch_id)
    post("/v3/kv/put", {"key": b64(prefix)})
    assert {stream.result()["watch_id"] for _ in range(2)} == {"1", "2"}
    stream.send('{"cancel_request": {"watch_id": "1"}}')
    assert stream.result()["canceled"] is True
    stream.send('{"progress_request": {}}')
    assert stream.result()["watch_id"] == "-1"


def test_the_end_of_the_body_does_not_end_the_watch(prefix, duplex):
    stream = duplex("/v3/watch")
    stream.send(create(prefix, 1))
    stream.end_of_body()
    assert stream.result()["created"] is True
    revision = post("/v3/kv/put", {"key": b64(prefix)})["header"]["revision"]
    assert stream.result()["events"][0]["kv"]["mod_revision"] == revision


@better
def test_requests_may_be_cut_anywhere_and_follow_each_other_without_a_gap(prefix, duplex):
    stream = duplex("/v3/watch")
    text = create(prefix, 1) + create(prefix, 2) + "\n \n" + create(prefix, 3) + "\n"
    for at in range(0, len(text), 5):
        stream.send(text[at : at + 5])
    assert [stream.result()["watch_id"] for _ in range(3)] == ["1", "2", "3"]


@better
def test_a_lease_is_kept_on_one_stream_until_its_body_ends(duplex):
    lease = post("/v3/lease/grant", {"TTL": 60})["ID"]
    stream = duplex("/v3/lease/keepalive")
    for _ in range(3):
        stream.send(json.dumps({"ID": lease}) + "\n")
        assert stream.result()["TTL"] == "60"
    stream.end_of_body()
    assert stream.is_at_its_end()
