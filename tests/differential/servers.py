"""Fresh servers: etcd or revgate on free ports and an empty directory, started and stopped."""

import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from wire import request

READY_SECONDS_MAX = 180
STOP_SECONDS_MAX = 60
LOOK_SECONDS = 0.02


# Below those that connections are given by themselves; none is given out twice.
PORTS = itertools.count(random.randrange(12000, 28000))
ports_lock = threading.Lock()


def free_port():
    """A port nothing listens on."""
    while True:
        with ports_lock:
            port = next(PORTS)
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Server:
    """A running server. `command` is the program and what comes before the flags both programs share."""

    def __init__(self, name, command, flags):
        self.name = name
        self.port, self.peer_port = free_port(), free_port()
        self.dir = tempfile.mkdtemp(prefix=f"differential-{name}-")
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer_port))
        self.log = open(os.path.join(self.dir, "log"), "w+b")
        shared = [
            "--data-dir", os.path.join(self.dir, "data"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ]
        self.process = subprocess.Popen([*command, *shared, *flags], stdout=self.log, stderr=self.log)
        self.variables = {}
        self.streams = {}

    def wait_ready(self):
        """Until it serves, and the cluster's version is decided."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                health = request(self.port, "GET", "/health", [], None)
                version = json.loads(request(self.port, "GET", "/version", [], None).body)
                storage = version.get("storage", "unknown")
                if health.status == 200 and "not_decided" not in version["etcdcluster"] and storage != "unknown":
                    return self
            except (OSError, ValueError, KeyError):
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not become ready:\n{self.said()}")
            time.sleep(LOOK_SECONDS)

    def said(self):
        """The end of its log."""
        self.log.flush()
        self.log.seek(0)
        return self.log.read()[-4000:].decode(errors="replace")

    def stop(self):
        for stream in self.streams.values():
            stream.hang_up()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
