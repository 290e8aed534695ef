"""A little of everything a server does, for a time, so that every panel of the dashboard has something to show.

    load.py SERVER SECONDS      SERVER is http://HOST:PORT; prints, as JSON, what was asked and how long puts took

Every kind of call, at a gentle pace: puts from writers that wait for each answer, reads, pages, txns, deletes, leases,
calls that fail, watches over NDJSON and WebSocket that come and go, compaction, and one defragmentation.
"""

import base64
import collections
import contextlib
import http.client
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

ANSWER_SECONDS_MAX = 30
WRITERS = 4
# Pauses between the calls of one thread. They only set the pace: nothing waits for them to be right.
WRITER_PAUSE_SECONDS = 0.02
READER_PAUSE_SECONDS = 0.02
ERRAND_PAUSE_SECONDS = 1.0
WATCH_SECONDS = 5.0
# After the last put a watch is silent.
WATCH_SILENCE_SECONDS_MAX = 2
KEYS = 500
VALUE = base64.b64encode(bytes(range(256)) * 2).decode()


def text(value):
    return base64.b64encode(value.encode()).decode()


class Server:
    """A connection that is kept."""

    def __init__(self, address, tally):
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=ANSWER_SECONDS_MAX)
        self.tally = tally

    def ask(self, path, request, status=200):
        self.connection.request("POST", path, json.dumps(request), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != status:
            raise SystemExit(f"{path} was answered {answer.status}, not {status}: {body[:300]!r}")
        self.tally.count(path)
        return json.loads(body)


class Tally:
    """What all threads did."""

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = collections.Counter()
        self.puts_in_txns = 0
        self.put_seconds = []

    def count(self, path):
        with self.lock:
            self.calls[path] += 1


def write(server, tally, number, ended):
    at = 0
    while not ended():
        key = text(f"load/{number}/{at % KEYS:04}")
        begun = time.monotonic()
        server.ask("/v3/kv/put", {"key": key, "value": VALUE})
        took = time.monotonic() - begun
        with tally.lock:
            tally.put_seconds.append(took)
        at += 1
        time.sleep(WRITER_PAUSE_SECONDS)


def read(server, tally, number, ended):
    at = 0
    while not ended():
        key = text(f"load/{number}/{at % KEYS:04}")
        server.ask("/v3/kv/range", {"key": key, "serializable": at % 2 == 0})
        if at % 10 == 0:
            server.ask("/v3/kv/range", {"key": text("load/"), "range_end": text("load0"), "limit": 100})
        if at % 50 == 0:
            server.ask("/v3/kv/range", {"key": text("load/"), "range_end": text("load0")})
        if at % 5 == 0:
            server.ask(
                "/v3/kv/txn",
                {
                    "compare": [{"key": key, "target": "VERSION", "result": "GREATER", "version": "0"}],
                    "success": [{"request_put": {"key": text(f"txn/{at % 100}"), "value": VALUE}}],
                    "failure": [{"request_put": {"key": text(f"txn/{at % 100}"), "value": VALUE}}],
                },
            )
            with tally.lock:
                tally.puts_in_txns += 1
        at += 1
        time.sleep(READER_PAUSE_SECONDS)


def run_errands(server, tally, number, ended):
    lease = 7000
    while not ended():
        lease += 1
        server.ask("/v3/lease/grant", {"TTL": 60, "ID": lease})
        server.ask("/v3/kv/put", {"key": text(f"leased/{lease}"), "value": VALUE, "lease": lease})
        server.ask("/v3/lease/keepalive", {"ID": lease})
        server.ask("/v3/lease/revoke", {"ID": lease})
        server.ask("/v3/lease/revoke", {"ID": lease}, status=404)
        server.ask("/v3/kv/deleterange", {"key": text("txn/"), "range_end": text("txn0")})
        server.ask("/v3/kv/put", {"key": ""}, status=400)
        revision = int(server.ask("/v3/kv/range", {"key": text("x"), "count_only": True})["header"]["revision"])
        if lease % 10 == 0:
            server.ask("/v3/kv/compaction", {"revision": revision - 1, "physical": True})
        time.sleep(ERRAND_PAUSE_SECONDS)
    server.ask("/v3/maintenance/defragment", {})


def watch_lines(address, ended):
    """A watch over NDJSON that comes and goes."""
    body = json.dumps({"create_request": {"key": text("load/"), "range_end": text("load0")}})
    while not ended():
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=WATCH_SILENCE_SECONDS_MAX)
        connection.request("POST", "/v3/watch", body)
        answer, until = connection.getresponse(), time.monotonic() + WATCH_SECONDS
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < until and not ended() and answer.readline():
                pass
        connection.close()


def watch_frames(address, ended):
    """The same over a WebSocket: what comes is taken and not looked at."""
    request = json.dumps({"create_request": {"key": text("load/"), "range_end": text("load0")}}).encode()
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(request))
    hello = (
        f"GET /v3/watch HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n"
    )
    while not ended():
        with socket.create_connection((address.hostname, address.port), WATCH_SILENCE_SECONDS_MAX) as connection:
            connection.sendall(hello.encode() + bytes([0x81, 0x80 | len(request)]) + mask + masked)
            until = time.monotonic() + WATCH_SECONDS
            with contextlib.suppress(TimeoutError):
                while time.monotonic() < until and not ended() and connection.recv(65536):
                    pass


def main(server, seconds):
    address = urllib.parse.urlsplit(server)
    tally, until = Tally(), time.monotonic() + float(seconds)
    failures = []

    def ended():
        return time.monotonic() > until or bool(failures)

    def guarded(work):
        try:
            work()
        except BaseException as failure:  # one thread's end is everybody's
            failures.append(failure)

    def caller(work, number):
        return lambda: work(Server(address, tally), tally, number, ended)

    works = [caller(write, number) for number in range(WRITERS)]
    works += [caller(read, number) for number in range(2)]
    works += [caller(run_errands, 0), lambda: watch_lines(address, ended), lambda: watch_frames(address, ended)]
    threads = [threading.Thread(target=guarded, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    puts = tally.calls["/v3/kv/put"] - tally.calls["/v3/lease/grant"]  # one of two errands' puts is refused
    print(
        json.dumps(
            {
                "calls": tally.calls,
                "puts": puts + tally.puts_in_txns,
                "put_seconds_mean": sum(tally.put_seconds) / len(tally.put_seconds),
                "puts_of_one_writer": min(len(tally.put_seconds) // WRITERS, puts),
            }
        )
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
