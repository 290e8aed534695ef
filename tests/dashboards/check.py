"""What promtool does not check of grafana/: the dashboard's rules of style, that alerts, runbook and tests go together, and
that every metric named anywhere is one a live server has.

    check.py style                     the dashboard, the runbook and the tests of the rules
    check.py rules                     every query of the dashboard as a recording rule, for promtool to parse
    check.py metrics FILE              names in FILE, a live /metrics, against dashboard, rules and etcd's mixin
    check.py mixin FILE                names of etcd's mixin that FILE lacks and is known to lack
    check.py data PROMETHEUS SPAN      every query of the dashboard and every recorded name has data in a Prometheus, rates
                                       being over SPAN

Reads the rules with a parser of the little YAML that they use, so that nothing has to be installed.
"""

import json
import pathlib
import re
import sys
import urllib.parse
import urllib.request

GRAFANA = pathlib.Path(__file__).parents[2] / "grafana"

# What the alerts and the dashboard of etcd's mixin read.
MIXIN = """
etcd_server_has_leader etcd_server_leader_changes_seen_total etcd_server_proposals_failed_total
etcd_server_proposals_pending etcd_server_proposals_committed_total etcd_server_proposals_applied_total
etcd_server_quota_backend_bytes etcd_mvcc_db_total_size_in_bytes etcd_mvcc_db_total_size_in_use_in_bytes
etcd_disk_wal_fsync_duration_seconds_bucket etcd_disk_backend_commit_duration_seconds_bucket
etcd_network_client_grpc_received_bytes_total etcd_network_client_grpc_sent_bytes_total
etcd_network_peer_received_bytes_total etcd_network_peer_sent_bytes_total etcd_network_peer_sent_failures_total
etcd_network_peer_round_trip_time_seconds_bucket grpc_server_started_total grpc_server_handled_total
grpc_server_handling_seconds_bucket process_resident_memory_bytes
""".split()
# Of these, what a server does not have, and why: alerts on them are silent.
MIXIN_ABSENT = {
    "etcd_network_peer_received_bytes_total": "one member has no peers",
    "etcd_network_peer_sent_bytes_total": "one member has no peers",
    "etcd_network_peer_sent_failures_total": "one member has no peers",
    "etcd_network_peer_round_trip_time_seconds_bucket": "one member has no peers",
}
# Made by Prometheus itself.
OF_PROMETHEUS = {"up"}
KEYWORDS = {"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "by", "without", "bool", "offset", "inf", "nan"}
VARIABLES = {"datasource", "job", "namespace", "instance"}


def metrics_named(expression):
    """Names of metrics in PromQL: identifiers that are no function, no keyword, and in no list of labels."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    text = re.sub(r"\{[^}]*\}", " ", text)
    text = re.sub(r"\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    found = re.findall(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(\s*\()?", text)
    return {name for name, call in found if not call and name not in KEYWORDS}


def rules():
    """(kind, name, expression, all lines) of each rule, by file."""
    for path in sorted(GRAFANA.glob("*.rules.yaml")):
        for rule in re.split(r"^ {6}(?:#.*\n {6})*(?=- (?:alert|record): )", path.read_text(), flags=re.MULTILINE)[1:]:
            kind, name = re.match(r"- (alert|record): (\S+)", rule).groups()
            block = re.search(r"^ {8}expr: \|\n((?: {10}.*\n)+)", rule, re.MULTILINE)
            expression = block[1] if block else re.search(r"^ {8}expr: (.*)$", rule, re.MULTILINE)[1]
            yield kind, name, expression, rule


def dashboard():
    return json.loads((GRAFANA / "dashboard.json").read_text())


def targets():
    """(title of the panel, query) of the whole dashboard."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def check_dashboard():
    board = dashboard()
    yield board["uid"] == "revgate" and board["id"] is None, "the dashboard has a fixed uid and no id"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    yield set(variables) == VARIABLES, f"the dashboard has the variables {sorted(VARIABLES)}"
    titles, ids, area = set(), set(), set()
    for panel in board["panels"]:
        title = panel["title"]
        yield bool(title) and title not in titles, f"{title}: has a title of its own"
        yield panel["id"] not in ids, f"{title}: has an id of its own"
        titles.add(title)
        ids.add(panel["id"])
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        yield not cells & area and max(x for x, _ in cells) < 24, f"{title}: has a place of its own"
        area |= cells
        if panel["type"] == "row":
            continue
        yield panel.get("description", "").endswith("."), f"{title}: has a description, in sentences"
        yield bool(panel["fieldConfig"]["defaults"].get("unit")), f"{title}: has a unit"
        sources = [panel["datasource"]] + [target["datasource"] for target in panel["targets"]]
        yield all(source["uid"] == "${datasource}" for source in sources), f"{title}: uses the datasource variable"
        for target in panel["targets"]:
            expression = target["expr"]
            selectors = re.findall(r"\{([^}]*)\}", expression)
            yield bool(selectors) and all(
                f'{name}=~"${name}"' in selector for selector in selectors for name in VARIABLES - {"datasource"}
            ), f"{title}: every selector of {target['refId']} has job, namespace and instance"
            rates = re.findall(r"\b(?:rate|irate)\([^\[]*\[([^\]]*)\]", expression)
            yield all(span == "$__rate_interval" for span in rates), f"{title}: {target['refId']} rates over $__rate_interval"
    first = next(panel["title"] for panel in board["panels"] if panel["type"] == "row")
    yield first == "Health", "health comes first"


def check_rules():
    alerts = {}
    for kind, name, _, text in rules():
        if kind == "alert":
            alerts.setdefault(name, []).append(text)
    sections = re.findall(r"^## (\w+)$", (GRAFANA / "runbook.md").read_text(), re.MULTILINE)
    yield sorted(sections) == sorted(alerts), "the runbook has a section for each alert, and no other"
    tests = (GRAFANA / "alerts.test.yaml").read_text()
    for name, texts in alerts.items():
        yield all(re.search(r"severity: (critical|warning|info)$", text, re.MULTILINE) for text in texts), f"{name}: has a severity"
        yield all(re.search(r"summary: .*\.$", text, re.MULTILINE) for text in texts), f"{name}: has a summary, a sentence"
        link = f"runbook_url: grafana/runbook.md#{name.lower()}"
        yield all(link in text for text in texts), f"{name}: names its section of the runbook"
        cases = re.findall(rf"alertname: {name}\n +exp_alerts:( \[\])?", tests)
        yield "" in cases and " []" in cases, f"{name}: is tested, firing and not firing"


def check_metrics(path):
    live = set(re.findall(r"^([a-zA-Z_:][\w:]*)[ {]", pathlib.Path(path).read_text(), re.MULTILINE)) | OF_PROMETHEUS
    recorded = {name for kind, name, _, _ in rules() if kind == "record"}
    named = {}
    for where, expression in [*targets(), *((name, expression) for _, name, expression, _ in rules())]:
        for metric in metrics_named(expression):
            named.setdefault(metric, where)
    yield len(named) > 50, f"{len(named)} metrics are named"
    for metric, where in sorted(named.items()):
        yield metric in live | recorded, f"{metric}, named by {where}: a live server has it"
    for metric in MIXIN:
        yield metric in live or metric in MIXIN_ABSENT, f"{metric}, named by etcd's mixin: a live server has it"


def ask(prometheus, query):
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def check_data(prometheus, span):
    queries = [*targets(), *((name, name) for kind, name, _, _ in rules() if kind == "record")]
    for where, query in queries:
        query = re.sub(r"\$(job|namespace|instance)\b", ".*", query.replace("$__rate_interval", span))
        yield bool(ask(prometheus, query)), f"{where}: there is data for {query}"
    firing = {series["metric"]["alertname"] for series in ask(prometheus, 'ALERTS{alertstate="firing"}')}
    yield not firing, f"no alert fires on a server that is well: {sorted(firing)}"


def say(checks):
    """Prints what is not so, and how much was looked at."""
    results = list(checks)
    for fine, text in results:
        if not fine:
            print(f"not so: {text}")
    print(f"{len(results)} looked at, {sum(not fine for fine, _ in results)} not so")
    return all(fine for fine, _ in results)


def main(task, *arguments):
    if task == "style":
        return say([*check_dashboard(), *check_rules()])
    if task == "metrics":
        return say(check_metrics(*arguments))
    if task == "data":
        return say(check_data(*arguments))
    if task == "mixin":
        live = pathlib.Path(arguments[0]).read_text()
        for metric, reason in MIXIN_ABSENT.items():
            print(f"{metric}: {'is there by now' if re.search(rf'^{metric}[ {{]', live, re.MULTILINE) else reason}")
        return True
    if task == "rules":
        print("groups:\n  - name: dashboard\n    rules:")
        for number, (_, expression) in enumerate(targets()):
            expression = expression.replace("$__rate_interval", "1m")
            print(f"      - record: query_{number}\n        expr: {json.dumps(expression)}")
        return True
    raise SystemExit(__doc__)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
