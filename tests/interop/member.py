"""A member, etcd or revgate, as a child process, and its JSON interface."""
import base64
import http.client
import json
import os
import socket
import subprocess
import time
import urllib.parse

READY_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60
ANSWER_SECONDS_MAX = 60
LOOK_SECONDS = 0.05
PAGE_KEYS = 2000


class Refused(Exception):
    def __init__(self, path, status, text):
        super().__init__(f"{path}: {status} {text}")
        self.status = status


def b64(text):
    return base64.b64encode(text.encode()).decode()


def free_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]


def everything(member, revision):
    """All keys with all that is known of them, at a revision."""
    pairs, start = [], b"\0"
    while True:
        key = base64.b64encode(start).decode()
        body = {"key": key, "range_end": "AA==", "revision": str(revision), "limit": str(PAGE_KEYS)}
        answer = member.call("kv/range", body)
        pairs += answer.get("kvs", [])
        if not answer.get("more"):
            return pairs
        start = base64.b64decode(pairs[-1]["key"]) + b"\0"


class Member:
    """`own_urls`: whether it is told its peer URLs and cluster, which a member that was restored without them must not
    need."""

    running = []

    def __init__(self, name, command, data, own_urls=True, start=True):
        self.name, self.command, self.data = name, command, data
        self.port, peer_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.cluster = f"default={self.peer_url}"
        self.own_urls = own_urls
        self.process = self.connection = None
        self.token = {}
        if start:
            self.start()

    def start(self):
        flags = ["--data-dir", self.data, "--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        if self.own_urls:
            flags += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
                      "--initial-cluster", self.cluster]
        self.log = open(self.data + ".log", "ab")
        self.process = subprocess.Popen([*self.command, *flags], stdout=self.log, stderr=self.log)
        Member.running.append(self)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS_MAX)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return self
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.data + ".log", "rb") as log:
                    said = log.read()[-4000:].decode(errors="replace")
                raise SystemExit(f"FAILED: {self.name} did not become ready:\n{said}")
            time.sleep(LOOK_SECONDS)

    def stop(self):
        self.process.terminate()
        self.process.wait(STOP_SECONDS_MAX)
        self.log.close()
        Member.running.remove(self)

    @classmethod
    def end_all(cls):
        for member in cls.running:
            member.process.kill()
            member.process.wait()

    def log_in(self, name, password):
        self.token = {}
        self.token = {"Authorization": self.call("auth/authenticate", {"name": name, "password": password})["token"]}
        return self

    def another(self, name, password):
        """The same member, asked as somebody else."""
        other = object.__new__(Member)
        other.__dict__ = {**self.__dict__, "connection": None}
        return other.log_in(name, password)

    def call(self, path, body):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS_MAX)
        headers = {"Content-Type": "application/json", **self.token}
        self.connection.request("POST", "/v3/" + path, json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise Refused(path, answer.status, text)
        return json.loads(text)

    def revision(self):
        return int(self.call("maintenance/status", {})["header"]["revision"])

    def watch(self, create):
        """The messages of a watch."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS_MAX)
        headers = {"Content-Type": "application/json", **self.token}
        connection.request("POST", "/v3/watch", json.dumps({"create_request": create}), headers)
        answer = connection.getresponse()
        try:
            for line in answer:
                yield json.loads(line)["result"]
        finally:
            connection.close()

    def watch_once(self, create):
        """What ends a watch."""
        for message in self.watch(create):
            if message.get("canceled"):
                return message
        raise SystemExit("FAILED: the watch was not canceled")

    def events(self, first, last):
        """Every change from one revision to another."""
        events = []
        if first > last:
            return events
        watch = self.watch({"key": "AA==", "range_end": "AA==", "start_revision": str(first)})
        for message in watch:
            if message.get("canceled"):
                raise SystemExit(f"FAILED: {self.name}: {message}")
            events += message.get("events", [])
            if events and int(events[-1]["kv"]["mod_revision"]) >= last:
                watch.close()
                return events

    def wait_compacted(self, revision):
        deadline = time.monotonic() + READY_SECONDS_MAX
        while int(self.call("maintenance/hashkv", {}).get("compact_revision", 0)) != revision:
            if time.monotonic() > deadline:
                raise SystemExit(f"FAILED: {self.name} does not compact up to {revision}")
            time.sleep(LOOK_SECONDS)
