"""What the client suites share: where the server is, a plain call, and waiting for a condition with a deadline."""

import base64
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

ENDPOINT = os.environ["REVGATE_ENDPOINT"]
HOST = urllib.parse.urlsplit(ENDPOINT).hostname
PORT = urllib.parse.urlsplit(ENDPOINT).port
WAIT_SECONDS_MAX = 15


def b64(data):
    """Base64 of text or bytes, as text."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def unb64(text):
    """The bytes behind a base64 text."""
    return base64.b64decode(text)


def prefix_end(key):
    """The end of the range of all keys that begin with `key`."""
    data = bytearray(key.encode() if isinstance(key, str) else key)
    data[-1] += 1
    return bytes(data)


def call(path, body, headers=None, method="POST"):
    """One request; gives the status, the headers and the text of the answer. `body` may be an object or bytes."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(ENDPOINT + path, data=data, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read().decode()


def post(path, body, headers=None):
    """A call that must be answered with 200; gives the JSON."""
    status, _, text = call(path, body, headers)
    assert status == 200, f"{path}: {status} {text}"
    return json.loads(text)


def until(condition, what, seconds_max=WAIT_SECONDS_MAX):
    """Looks until `condition()` is true and gives what it gave; fails with `what` at the deadline."""
    deadline = time.monotonic() + seconds_max
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what}"
        time.sleep(0.02)
