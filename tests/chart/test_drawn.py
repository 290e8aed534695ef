"""What the chart draws for every combination of members, TLS, authentication and monitoring."""

import itertools
import json
import re
import shutil

import helm_python as helm
import kubernetes_validate
import pytest

from support import (
    AUTH, BACKUP, CHART, FULLNAME, MANAGED_TLS, MONITORING, MUTUAL_TLS, NAMESPACE, ROOT, SECRET_TLS, cluster, containers,
    find, merged, objects, pods, promtool_agrees, settings, texts,
)

# Of the versions that the chart says it is for, the oldest and the newest that there are schemas for.
KUBERNETES = ("1.27", "1.37")
# Kinds of operators: there are no schemas of theirs here.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "Certificate"}
TLS = {"plain": {}, "secret": SECRET_TLS, "managed": MANAGED_TLS, "mutual": MUTUAL_TLS}
MATRIX = list(itertools.product((1, 3, 5), TLS, (False, True), (False, True)))


def draw(replicas, tls, auth, monitoring):
    return objects(cluster(replicas), TLS[tls], AUTH if auth else {}, merged(MONITORING, BACKUP) if monitoring else {})


def test_lint_has_nothing_to_say():
    report = helm.lint(str(CHART), strict=True, kube_version="v1.37.0")
    # An icon is all that it would like to have.
    told = [message for message in report["messages"] if "icon is recommended" not in str(message)]
    assert told == [] and report["errors"] == []


@pytest.mark.parametrize("replicas, tls, auth, monitoring", MATRIX)
def test_kubernetes_would_take_it(replicas, tls, auth, monitoring):
    drawn = draw(replicas, tls, auth, monitoring)
    for each in drawn:
        if each["kind"] not in FOREIGN:
            for version in KUBERNETES:
                kubernetes_validate.validate(each, version, strict=True)
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in drawn]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 for _, _, name in names)
    stateful = find(drawn, "StatefulSet")
    assert stateful["spec"]["replicas"] == replicas
    wanted = {"Secret": auth, "Job": auth, "CronJob": monitoring, "ServiceMonitor": monitoring, "PrometheusRule": monitoring,
              "Certificate": tls == "managed"}
    kinds = {each["kind"] for each in drawn}
    assert {kind: kind in kinds for kind in wanted} == wanted


@pytest.mark.parametrize("replicas, tls, auth, monitoring", [(1, "mutual", True, True), (3, "managed", True, True)])
def test_every_pod_is_confined(replicas, tls, auth, monitoring):
    for name, pod in pods(draw(replicas, tls, auth, monitoring)):
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] != 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False, name
        volumes = {volume["name"] for volume in pod.get("volumes", [])} | ({"data"} if name == FULLNAME else set())
        for container in containers(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            mounts = [mount["name"] for mount in container.get("volumeMounts", [])]
            assert set(mounts) <= volumes and len(set(mounts)) == len(mounts), name


@pytest.mark.parametrize("replicas", (1, 3, 5))
def test_members_know_each_other_and_are_never_removed(replicas):
    drawn = objects(cluster(replicas))
    spec = find(drawn, "StatefulSet")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (first,) = [argument for argument in container["args"] if argument.startswith("--initial-cluster=")]
    domain = f"{spec['serviceName']}.{NAMESPACE}.svc.cluster.local"
    members = [f"{FULLNAME}-{number}=http://{FULLNAME}-{number}.{domain}:2380" for number in range(replicas)]
    assert first == "--initial-cluster=" + ",".join(members)
    assert f"--initial-advertise-peer-urls=http://$(REVGATE_NAME).{domain}:2380" in container["args"]
    assert "lifecycle" not in container
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    headless = find(drawn, "Service", spec["serviceName"])["spec"]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
    assert find(drawn, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_selectors_find_members_and_nothing_else():
    drawn = draw(1, "plain", True, True)
    labels = find(drawn, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [find(drawn, "Service")["spec"]["selector"], find(drawn, "StatefulSet")["spec"]["selector"]["matchLabels"],
                 find(drawn, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
                 find(drawn, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    job = find(drawn, "Job", f"{FULLNAME}-auth")["spec"]["template"]["metadata"]["labels"]
    for selector in selectors:
        assert "helm.sh/chart" not in selector
        assert selector.items() <= labels.items() and not selector.items() <= job.items()
    monitor = find(drawn, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    services = [each["metadata"]["name"] for each in drawn if each["kind"] == "Service" and monitor.items() <= each["metadata"]["labels"].items()]
    assert services == [f"{FULLNAME}-headless"]


def test_the_stop_has_more_time_than_the_drain():
    drawn = objects()
    pod = find(drawn, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 10 and settings(drawn)["drain-timeout"] == "10s"


def test_large_numbers_are_written_out():
    values = {"config": {"quotaBackendBytes": 8589934592, "settings": {"reclaim-free-bytes": 1073741824}}}
    text = find(objects(values), "ConfigMap", f"{FULLNAME}-config")["data"]["revgate.yaml"]
    assert "quota-backend-bytes: 8589934592\n" in text and "reclaim-free-bytes: 1073741824\n" in text


def test_settings_become_the_file_and_another_file_another_pod():
    values = {"config": {"settings": {"cors": "*", "client-ping-interval": "10s", "enable-grpc-gateway": True, "log-outputs": ["stderr", "stdout"]}}}
    drawn, plain = objects(values), objects()
    assert settings(drawn) == {**settings(plain), **values["config"]["settings"]}
    sums = [find(each, "StatefulSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for each in (drawn, plain, objects())]
    assert sums[0] != sums[1] == sums[2]
    pod = find(drawn, "StatefulSet")["spec"]["template"]["spec"]
    assert {"name": "config", "configMap": {"name": f"{FULLNAME}-config"}} in pod["volumes"]
    assert "--config-file=/etc/revgate/config/revgate.yaml" in pod["containers"][0]["args"]


def test_a_closed_network_lets_the_chart_s_own_jobs_in():
    drawn = objects(AUTH, BACKUP, {"networkPolicy": {"allowExternal": False}})
    allowed = find(drawn, "NetworkPolicy")["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    backup = find(drawn, "CronJob", f"{FULLNAME}-backup")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    auth = find(drawn, "Job", f"{FULLNAME}-auth")["spec"]["template"]["metadata"]["labels"]
    test = find(drawn, "Pod", f"{FULLNAME}-test")["metadata"]["labels"]
    assert all(allowed.items() <= labels.items() for labels in (backup, auth, test))


@pytest.mark.parametrize("tls, own_port, port, scheme", [
    ("plain", True, "metrics", None), ("secret", True, "metrics", None), ("mutual", True, "metrics", None),
    ("plain", False, "client", None), ("secret", False, "client", "https"),
])
def test_prometheus_is_told_how_to_ask(tls, own_port, port, scheme):
    drawn = objects(TLS[tls], MONITORING, {"metrics": {"ownPort": {"enabled": own_port}}})
    monitor = find(drawn, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint.get("scheme")) == (port, scheme)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    ports = {each["name"] for each in find(drawn, "Service", f"{FULLNAME}-headless")["spec"]["ports"]}
    allowed = {each["port"] for rule in find(drawn, "NetworkPolicy")["spec"]["ingress"] for each in rule["ports"]}
    assert port in ports and port in allowed
    (container,) = find(drawn, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    asked = {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {port} and port in {each["name"] for each in container["ports"]}
    if scheme:
        assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "certificate", "key": "ca.crt"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool is to be had here")
def test_rules_are_of_this_release_alone(tmp_path):
    disabled = {"metrics": {"prometheusRule": {"disabled": ["RevgateLeaderChangesOften"]}}}
    groups = find(objects(MONITORING, disabled), "PrometheusRule")["spec"]["groups"]
    promtool_agrees(groups, tmp_path)
    rules = [rule for group in groups for rule in group["rules"]]
    written = (ROOT / "grafana" / "alerts.rules.yaml").read_text() + (ROOT / "grafana" / "recording.rules.yaml").read_text()
    assert len(rules) == len(re.findall(r"- (?:alert|record):", written)) - 1
    assert "RevgateLeaderChangesOften" not in {rule.get("alert") for rule in rules}
    for rule in rules:
        selectors = re.findall(r"\{([^}]*)\}", rule["expr"])
        assert selectors and all(f'job="{FULLNAME}", namespace="{NAMESPACE}"' in selector for selector in selectors), rule
        if "alert" in rule:
            assert rule["annotations"]["runbook_url"] == f"https://wiki.example/revgate#{rule['alert'].lower()}"
            assert "{{ $labels" in rule["annotations"]["description"]


def test_the_dashboard_comes_whole():
    found = find(objects(MONITORING), "ConfigMap", f"{FULLNAME}-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"][f"{FULLNAME}.json"]) == json.loads((ROOT / "grafana" / "dashboard.json").read_text())


def test_a_package_has_all_of_it(tmp_path):
    package = helm.package(str(CHART), destination=str(tmp_path))
    with helm.Chart.load(package) as chart:
        drawn = chart.render(MONITORING, name="kv", namespace="prod")
    assert drawn["revgate/templates/monitoring.yaml"] == texts(MONITORING)["monitoring.yaml"]


@pytest.mark.parametrize("values, words", [
    ({}, "helm -n prod test kv"),
    ({"persistence": {"enabled": False}}, "WARNING: persistence is off"),
    ({"service": {"type": "LoadBalancer"}}, "WARNING: the service can be reached from outside"),
    (AUTH, "WARNING: there is no TLS"),
    (SECRET_TLS, "--cacert ca.crt https://localhost:2379"),
])
def test_the_notes_say_what_to_do(values, words):
    assert words in texts(values)["NOTES.txt"]
