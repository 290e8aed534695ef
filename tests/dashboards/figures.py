"""Whether the figures that a Prometheus has of a server are those that the server, and who put load on it, tell.

    figures.py PROMETHEUS SERVER LOAD      addresses, and the file with what load.py printed for that server since its start

Waits until Prometheus has scraped the server at rest, then compares.
"""

import json
import pathlib
import sys
import time
import urllib.parse
import urllib.request

SETTLED_SECONDS_MAX = 60
LOOK_PAUSE_SECONDS = 0.2


def ask(prometheus, query):
    """The one value of a query; NaN if there is none."""
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return float(result[0]["value"][1]) if result else float("nan")


def status(server):
    with urllib.request.urlopen(f"{server}/v3/maintenance/status", b"{}", timeout=10) as answer:
        return json.load(answer)


def settled(prometheus, server):
    """The server's own account, once Prometheus' is as new."""
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        account = status(server)
        same = {
            "etcd_mvcc_db_total_size_in_bytes": "dbSize",
            "etcd_mvcc_db_total_size_in_use_in_bytes": "dbSizeInUse",
            "etcd_server_proposals_committed_total": "raftIndex",
            "etcd_server_proposals_applied_total": "raftAppliedIndex",
        }
        found = {metric: (ask(prometheus, metric), float(account[field])) for metric, field in same.items()}
        if all(scraped == told for scraped, told in found.values()) or time.monotonic() > deadline:
            return found
        time.sleep(LOOK_PAUSE_SECONDS)


def checks(prometheus, server, load):
    for metric, (scraped, told) in settled(prometheus, server).items():
        yield scraped == told, f"{metric} is {scraped:.0f}, and the server says {told:.0f}"
    lag = ask(prometheus, "revgate_apply_lag_entries")
    yield lag == 0, f"at rest nothing waits to be applied: {lag:.0f} entries"
    worst = ask(prometheus, "max_over_time(revgate_apply_lag_entries[5m])")
    pending = ask(prometheus, "max_over_time(etcd_server_proposals_pending[5m])")
    yield worst <= 100 and pending <= 100, f"the load was gentle: never more than {worst:.0f} behind, {pending:.0f} waiting"
    puts = ask(prometheus, "etcd_mvcc_put_total")
    yield puts == load["puts"], f"{puts:.0f} puts applied, {load['puts']} answered"
    for method, path in {"Put": "/v3/kv/put", "Range": "/v3/kv/range", "Txn": "/v3/kv/txn"}.items():
        handled = ask(prometheus, f'sum(grpc_server_handled_total{{grpc_method="{method}"}})')
        yield handled == load["calls"][path], f"{handled:.0f} calls of {method} counted, {load['calls'][path]} made"
    syncs = ask(prometheus, "etcd_disk_wal_fsync_duration_seconds_count")
    entries = ask(prometheus, "etcd_server_proposals_committed_total")
    # Each put of a writer that waits for its answer needs a sync of its own; no entry needs two, but opening a segment,
    # and the vote and the entry of a term, do.
    least, most = load["puts_of_one_writer"], 2 * entries + 100
    yield least <= syncs <= most, f"{syncs:.0f} syncs of the log, between {least} and {most:.0f}"
    mean = ask(prometheus, "etcd_disk_wal_fsync_duration_seconds_sum / etcd_disk_wal_fsync_duration_seconds_count")
    yield 0 < mean <= load["put_seconds_mean"], f"a sync took {mean:.6f} s, a put {load['put_seconds_mean']:.6f} s, on average"


def main(prometheus, server, load):
    fine = True
    for holds, text in checks(prometheus, server, json.loads(pathlib.Path(load).read_text())):
        print(f"{'so' if holds else 'not so'}: {text}")
        fine &= holds
    return fine


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    sys.exit(not main(*sys.argv[1:]))
