"""HTTP/1.1 and WebSocket clients that send exactly what they are told: bodies byte by byte, streams read as they come."""

import base64
import http.client
import json
import os
import queue
import socket
import struct
import threading

ANSWER_SECONDS_MAX = 60


class Answer:
    """Status, headers and body of one HTTP response."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @staticmethod
    def of(response):
        return Answer(response.status, response.headers, response.read())


def request(port, method, path, headers, body):
    """One request on a connection of its own. `headers` are pairs; the length is added unless they say how long the body is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        _send_head(connection, method, path, headers, None if body is None else len(body))
        if body:
            # A server may answer, and hang up, before it has read everything.
            try:
                connection.send(body)
            except (BrokenPipeError, ConnectionResetError):
                pass
        return Answer.of(connection.getresponse())
    finally:
        connection.close()


def raw(port, text):
    """Sends bytes as they are and reads one response."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX) as link:
        link.sendall(text)
        response = http.client.HTTPResponse(link, method=text.split(b" ", 1)[0].decode("latin-1"))
        response.begin()
        return Answer.of(response)


def _send_head(connection, method, path, headers, length):
    names = {name.lower() for name, _ in headers}
    connection.putrequest(method, path, skip_host="host" in names, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    if length is not None and not names & {"content-length", "transfer-encoding"}:
        connection.putheader("Content-Length", str(length))
    connection.endheaders()


class Stream:
    """What comes in, on a thread of its own: a head, then messages (bytes), then the end."""

    def __init__(self):
        self.arrivals = queue.Queue()
        self.has_head = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        try:
            self._receive()
            self.arrivals.put(("end", None))
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            self.arrivals.put(("end", type(error).__name__))

    def next(self, seconds):
        """The next ("head" | "message" | "close" | "end", value); raises queue.Empty when nothing comes in time."""
        kind, value = self.arrivals.get(timeout=seconds)
        self.has_head = self.has_head or kind == "head"
        return kind, value


class HttpStream(Stream):
    """A request whose answer is a stream of lines. With `chunked` the request's body stays open for more."""

    def __init__(self, port, method, path, headers, body, chunked):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=None)
        self.chunked = chunked
        if chunked:
            headers = [*headers, ("Transfer-Encoding", "chunked")]
        _send_head(self.connection, method, path, headers, None if chunked else len(body))
        self.link = self.connection.sock
        if body:
            self.send(body)
        super().__init__()

    def send(self, body):
        self.link.sendall(b"%x\r\n%s\r\n" % (len(body), body) if self.chunked else body)

    def finish(self):
        self.link.sendall(b"0\r\n\r\n")

    def hang_up(self):
        try:
            self.link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.link.close()

    def _receive(self):
        response = self.connection.getresponse()
        self.arrivals.put(("head", (response.status, response.headers)))
        for line in response:
            if line.strip():
                self.arrivals.put(("message", line))


class WebSocket(Stream):
    """A WebSocket: text frames out, frames in; pings are answered."""

    TEXT, CLOSE, PING, PONG = 1, 8, 9, 10

    def __init__(self, port, path, headers):
        self.link = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1"]
        if not any(name.lower() == "host" for name, _ in headers):
            lines.append(f"Host: 127.0.0.1:{port}")
        lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.link.sendall("\r\n".join([*lines, "", ""]).encode())
        self.response = http.client.HTTPResponse(self.link, method="GET")
        self.answered = threading.Event()
        super().__init__()

    def send(self, body, kind=TEXT):
        # etcd hangs up on a client that speaks before it was answered.
        self.answered.wait(ANSWER_SECONDS_MAX)
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(body))
        length = len(body)
        if length < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | length)
        elif length < 65536:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, length)
        self.link.sendall(head + mask + masked)

    def finish(self):
        self.send(struct.pack("!H", 1000), self.CLOSE)

    def hang_up(self):
        try:
            self.link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.link.close()

    def _receive(self):
        try:
            self.link.settimeout(ANSWER_SECONDS_MAX)
            self.response.begin()
            self.link.settimeout(None)
        finally:
            self.answered.set()
        self.arrivals.put(("head", (self.response.status, self.response.headers)))
        if self.response.status != 101:
            self.arrivals.put(("message", self.response.read()))
            return
        text = b""
        while True:
            first, second = self._exactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", self._exactly(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._exactly(8))
            payload = self._exactly(length)
            kind = first & 0x0F
            if kind == self.PING:
                self.send(payload, self.PONG)
            elif kind == self.CLOSE:
                code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else None
                self.arrivals.put(("close", code))
                return
            elif kind in (0, self.TEXT):
                text += payload
                if first & 0x80:
                    self.arrivals.put(("message", text))
                    text = b""

    def _exactly(self, count):
        # HTTPResponse reads through a buffer, in which frames that came with the head already are.
        got = self.response.fp.read(count) if self.response.fp else b""
        if len(got) < count:
            raise ConnectionError("the connection ended")
        return got


def as_json(text):
    """The JSON value in `text`, or `None` when it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
