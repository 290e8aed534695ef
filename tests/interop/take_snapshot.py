#!/usr/bin/env python3
"""Takes a snapshot over HTTP as etcd's own client stores it: the file's bytes with their SHA-256 behind.

take_snapshot.py URL FILE
"""
import base64
import hashlib
import json
import sys
import urllib.request

url, path = sys.argv[1:]
parts, left = [], None
with urllib.request.urlopen(urllib.request.Request(url + "/v3/maintenance/snapshot", b"{}"), timeout=60) as answer:
    for line in answer:
        message = json.loads(line)["result"]
        parts.append(base64.b64decode(message["blob"]))
        left = int(message.get("remaining_bytes", 0))
data, digest = b"".join(parts[:-1]), parts[-1]
if left != 0 or hashlib.sha256(data).digest() != digest:
    raise SystemExit("the snapshot is not whole")
with open(path, "wb") as file:
    file.write(data + digest)
print(f"{len(data)} bytes in {len(parts) - 1} parts")
