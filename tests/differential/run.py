#!/usr/bin/env python3
"""Sends the same requests, in the same order, to a fresh etcd and a fresh revgate, and compares the answers.

    run.py --etcd PROGRAM --revgate PROGRAM [--at-once NUMBER] [THEME…]

README.md says how cases are written; intended.md lists the differences that are meant to be. Needs nothing but Python 3.
"""

import argparse
import difflib
import json
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from cases import METHODS, Theme, escaped, expand
from compare import Intended, differences, masked, masked_text
from servers import Server
from wire import HttpStream, WebSocket, as_json, raw, request

HERE = Path(__file__).resolve().parent
# Nothing that is to come is late before this: a machine may have other work.
MESSAGE_SECONDS_MAX = 60
# What is not to come is not waited for longer than this.
QUIET_SECONDS = 0.4
UNTIL_SECONDS_MAX = 60
UNTIL_LOOK_SECONDS = 0.1
SHOWN_LINES_MAX = 40
SHOWN_COLUMNS_MAX = 240
NOTHING_TO_COMPARE = ("OPEN", "CHUNKED", "WS", "SEND", "FINISH", "HANGUP")


def answer_of(server, case, silent):
    """Plays one case against one server; what came back, as JSON with the server's own parts masked, or `None`. A server that
    is known to be silent here is not waited for."""
    words = expand(case.words, server.variables)
    headers = [tuple(part.strip() for part in expand(argument, server.variables).split(":", 1)) for argument in case.option("header")]
    # Variables may stand in a body that is escaped, but what they hold is not.
    encode = escaped if case.option("escaped") else str.encode
    if case.verb == "RAW":
        return of_response(server, case, raw(server.port, escaped(words)))
    if case.verb in METHODS:
        path, _, body = words.partition(" ")
        send = lambda: request(server.port, case.verb, path, headers, encode(body) if case.verb != "GET" or body else None)
        return until(server, case, send)
    name, _, rest = words.partition(" ")
    if case.verb in ("OPEN", "CHUNKED"):
        method, path, body = (*rest.split(" ", 2), "")[:3]
        stream = HttpStream(server.port, method, path, headers, encode(body), chunked=case.verb == "CHUNKED")
        server.streams[name] = stream
        return None
    if case.verb == "WS":
        server.streams[name] = WebSocket(server.port, rest, headers)
        return None
    return of_stream(server, case, server.streams[name], rest, encode, silent)


def until(server, case, send):
    """Repeats a request until its answer has what the case waits for."""
    deadline = time.monotonic() + UNTIL_SECONDS_MAX
    while True:
        answer = send()
        if all(
            str(member(as_json(answer.body), path)) == value
            for path, _, value in (wanted.partition(" ") for wanted in case.option("until"))
        ) or time.monotonic() > deadline:
            return of_response(server, case, answer)
        time.sleep(UNTIL_LOOK_SECONDS)


def of_response(server, case, answer):
    seen = {"status": answer.status, "type": answer.headers.get("Content-Type", "")}
    for name in case.option("show"):
        seen[f"header {name}"] = masked_text(", ".join(answer.headers.get_all(name, ["(absent)"])), server, {})
    seen["body"] = body_of(server, case, answer.body)
    return seen


def body_of(server, case, text):
    """A body as JSON, or as a list of JSON when it is lines, or as text."""
    value = as_json(text)
    if value is None:
        lines = [as_json(line) for line in text.splitlines() if line.strip()]
        value = lines if lines and None not in lines else text.decode(errors="backslashreplace")
    return prepared(server, case, value)


def prepared(server, case, value):
    for argument in case.option("save"):
        name, _, path = argument.partition(" ")
        server.variables[name] = member(value, path)
    for path in case.option("mask"):
        replace_member(value, path.split("."), "<masked>")
    for path in case.option("drop"):
        replace_member(value, path.split("."), None)
    value = masked(value, server, server.variables)
    if case.option("any-text"):
        value = without_text(value)
    if case.option("unordered"):
        value = in_order(value)
    return value


def member(value, path):
    """What is at a path like `kvs.0.lease`, or `None`."""
    for step in path.split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def replace_member(value, steps, new):
    """Puts `new` in a member's place, if there is one; `None`: takes it out."""
    for step in steps[:-1]:
        value = member(value, step)
    if member(value, steps[-1]) is not None:
        place = int(steps[-1]) if isinstance(value, list) else steps[-1]
        if new is None:
            del value[place]
        else:
            value[place] = new


def without_text(value):
    """An error without its words."""
    if isinstance(value, list):
        return [without_text(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    words = ("message", "error") if "code" in value else ()
    return {
        key: "<text>" if key in words and isinstance(inner, str) else without_text(inner)
        for key, inner in value.items()
        if key != "details"
    }


def in_order(value):
    if isinstance(value, str) and "\n" in value:
        return "\n".join(sorted(value.split("\n")))
    if isinstance(value, list):
        return sorted((in_order(inner) for inner in value), key=json.dumps)
    if isinstance(value, dict):
        return {key: in_order(inner) for key, inner in value.items()}
    return value


def of_stream(server, case, stream, rest, encode, silent):
    if case.verb == "SEND":
        try:
            stream.send(encode(rest))
        except OSError:
            pass
    elif case.verb == "FINISH":
        stream.finish()
    elif case.verb == "HANGUP":
        stream.hang_up()
    else:
        return read_stream(server, case, stream, rest, silent)
    return None


def read_stream(server, case, stream, rest, silent):
    """Reads some messages (READ), some events whatever messages they come in (EVENTS), nothing (QUIET) or to the end (ENDED)."""
    seen = {"messages": []}
    events = []
    count = int(rest) if rest else 0
    while True:
        # Our heads come at once, and are waited for.
        quiet = silent or case.verb == "QUIET" and (server.name == "etcd" or stream.has_head)
        waits = QUIET_SECONDS if quiet else MESSAGE_SECONDS_MAX
        if case.verb == "READ" and len(seen["messages"]) >= count or case.verb == "EVENTS" and len(events) >= count:
            break
        try:
            kind, value = stream.next(waits)
        except queue.Empty:
            if case.verb != "QUIET":
                seen["silence"] = True
            break
        if kind == "head":
            status, headers = value
            seen["status"], seen["type"] = status, headers.get("Content-Type", "")
            for name in case.option("show"):
                seen[f"header {name}"] = ", ".join(headers.get_all(name, ["(absent)"]))
        elif kind == "message":
            message = as_json(value)
            message = message if message is not None else value.decode(errors="backslashreplace")
            if case.verb == "EVENTS" and member(message, "result.events"):
                events.extend(message["result"]["events"])
            else:
                seen["messages"].append(message)
        else:
            seen[kind] = True if value is None else value
            if kind == "end":
                break
    seen["messages"] = prepared(server, case, seen["messages"])
    if case.verb == "EVENTS":
        seen["events"] = prepared(server, case, events)
    return seen


class Report:
    """Counts, and what is not as it should be."""

    def __init__(self):
        self.passed = self.requests = 0
        self.failures = []


def play(theme, programs, intended):
    """One theme against two fresh servers."""
    began, report = time.monotonic(), Report()
    servers = [Server(name, command, [*theme.flags, *extra]) for name, command, extra in programs]
    try:
        for server in servers:
            server.wait_ready()
        for case in theme.cases:
            report.requests += case.verb in METHODS or case.verb in ("RAW", "OPEN", "CHUNKED", "WS", "SEND")
            etcd, ours = (
                attempt(server, case, server.name == "etcd" and intended.is_silence(case.id)) for server in servers
            )
            if case.verb in NOTHING_TO_COMPARE and etcd == ours:
                continue
            left = intended.unexpected(case.id, differences(etcd, ours))
            if left:
                what = f"{case.id} (line {case.line}) {case.verb} {case.words[:300]}"
                report.failures.append(f"{what}\n{side_by_side(etcd, ours, left)}")
            else:
                report.passed += 1
    finally:
        for server in servers:
            server.stop()
    seconds = time.monotonic() - began
    for text in report.failures:
        print(f"DIFFERS: {text}", flush=True)
    print(f"{theme.name}: {report.passed} equal or as intended, {len(report.failures)} not, {seconds:.0f} s", flush=True)
    return report


def attempt(server, case, silent):
    """An answer, or how the attempt to get one ended."""
    try:
        return answer_of(server, case, silent)
    except Exception as error:  # Whatever a server does, the other one must do too.
        return {"failure": f"{type(error).__name__}"}


def side_by_side(etcd, ours, unexpected):
    texts = [json.dumps(answer, indent=1, sort_keys=True).splitlines() for answer in (etcd, ours)]
    diff = list(difflib.unified_diff(*texts, "etcd", "revgate", lineterm="", n=2))
    lines = [*(difference.text for difference in unexpected[:SHOWN_LINES_MAX]), *diff[:SHOWN_LINES_MAX]]
    return "\n".join("    " + line[:SHOWN_COLUMNS_MAX] for line in lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--etcd", required=True, help="the etcd to compare with")
    arguments.add_argument("--revgate", required=True, help="the revgate to compare")
    arguments.add_argument("--at-once", type=int, default=4, help="how many themes are played at the same time")
    arguments.add_argument("themes", nargs="*", help="themes to play; all if none is named")
    given = arguments.parse_args()
    themes = [Theme(path) for path in sorted((HERE / "cases").glob("*.txt"))]
    all_names = {theme.name for theme in themes}
    if given.themes:
        themes = [theme for theme in themes if theme.name in given.themes]
    programs = [
        ("etcd", [given.etcd], ["--log-level", "error", "--unsafe-no-fsync"]),
        ("revgate", [given.revgate, "serve"], []),
    ]
    intended = Intended(HERE / "intended.md")
    # Most of a theme is waiting for what must not come.
    with ThreadPoolExecutor(given.at_once) as pool:
        played = [pool.submit(play, theme, programs, intended) for theme in themes]
        reports = [done.result() for done in as_completed(played)]
    unneeded = [] if given.themes else list(intended.unneeded(all_names))
    for text in unneeded:
        print(f"DIFFERS: {text}", flush=True)
    failed = len(unneeded) + sum(len(report.failures) for report in reports)
    print(f"{sum(report.requests for report in reports)} requests sent to each")
    print(f"{sum(report.passed for report in reports)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
