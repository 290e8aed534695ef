"""What the chart draws, run: members answer their probes, and the jobs' scripts do what they are for."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
import yaml

from support import (
    AUTH, BACKUP, CHART, FULLNAME, MUTUAL_TLS, NAMESPACE, ONE_PORT, PASSWORD, REVGATE, SECRET_TLS, Pod, containers, environment, expanded, find,
    make_certificates, merged, objects, pods, run_script,
)

SECRETS = {"root-password": PASSWORD}
# Without the port of its own: then probes ask where clients do, and can only connect where those need certificates.
WAYS = [{}, SECRET_TLS, MUTUAL_TLS, merged(SECRET_TLS, ONE_PORT), merged(MUTUAL_TLS, ONE_PORT)]
WAYS_NAMES = ["plain", "tls", "mutual", "tls-one-port", "mutual-one-port"]


def container(drawn, pod, name):
    (found,) = [each for each in containers(dict(pods(drawn))[pod]) if each["name"] == name]
    return found


def ask(pod, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{pod.ports['client']}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture
def work(tmp_path):
    make_certificates(tmp_path)
    return tmp_path


@pytest.mark.parametrize("values", WAYS, ids=WAYS_NAMES)
def test_a_member_answers_its_probes_and_stops(work, values):
    with Pod(work, objects(values)) as pod:
        pod.wait_until_ready()
        assert all(pod.probe(name) for name in ("startupProbe", "livenessProbe", "readinessProbe"))
        assert pod.stop() == 0


def test_a_port_of_its_own_answers_probes_where_clients_need_certificates(work):
    with Pod(work, objects(MUTUAL_TLS)) as pod:
        pod.wait_until_ready()
        with urllib.request.urlopen(f"http://127.0.0.1:{pod.ports['metrics']}/metrics", timeout=5) as answer:
            assert b"etcd_server_has_leader 1" in answer.read()
        assert pod.stop() == 0


def test_a_member_is_run_by_its_settings(work):
    values = {"config": {"maxTxnOps": 1, "settings": {"host-whitelist": "127.0.0.1", "wal-dir": "/x"}}}
    with Pod(work, objects(values)) as pod:
        pod.wait_until_ready()
        put = {"request_put": {"key": "Zm9v"}}
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(pod, "/v3/kv/txn", {"success": [put, put]})
        assert b"too many operations" in refused.value.read()
        # etcd's own settings are told as having no effect.
        assert "wal-dir in " in pod.said() and "has no effect here" in pod.said()
        assert pod.stop() == 0


def test_a_member_comes_back_as_who_it_was(work):
    drawn, members = objects(), []
    for _ in range(2):
        with Pod(work, drawn) as pod:
            pod.wait_until_ready()
            members.append(ask(pod, "/v3/cluster/member/list", {})["members"])
            assert pod.stop() == 0
    assert members[0] == members[1]
    (member,) = members[0]
    assert member["name"] == f"{FULLNAME}-0"
    assert member["clientURLs"] == [f"http://{FULLNAME}-0.{FULLNAME}-headless.prod.svc.cluster.local:2379"]


@pytest.mark.parametrize("values", WAYS, ids=WAYS_NAMES)
def test_the_helm_test_succeeds(work, values):
    drawn = objects(values)
    with Pod(work, drawn) as pod:
        pod.wait_until_ready()
        done = run_script(container(drawn, f"{FULLNAME}-test", "test"), pod, work)
        assert done.returncode == 0, done


@pytest.mark.parametrize("values", [{}, SECRET_TLS], ids=["plain", "tls"])
def test_authentication_is_turned_on_once(work, values):
    drawn = objects(values, AUTH)
    auth = container(drawn, f"{FULLNAME}-auth", "auth")
    with Pod(work, drawn) as pod:
        pod.wait_until_ready()
        first, second = (run_script(auth, pod, work, SECRETS) for _ in range(2))
        assert first.returncode == 0 and first.stdout.endswith("authentication is on\n"), first
        assert second.returncode == 0 and second.stdout == "authentication is on, and the password is right\n", second
        assert run_script(auth, pod, work, {"root-password": "another"}).returncode != 0
        done = run_script(container(drawn, f"{FULLNAME}-test", "test"), pod, work, SECRETS)
        assert done.returncode == 0, done
        assert all(pod.probe(name) for name in ("startupProbe", "livenessProbe", "readinessProbe"))


def save(drawn, pod, work, job):
    """The backup's first two containers, for a job of that name."""
    for name in ("save", "check"):
        each = container(drawn, f"{FULLNAME}-backup", name)
        variables = environment(each, job, SECRETS)
        arguments = [expanded(argument, variables).replace("/backup", f"{work}/backup") for argument in each["args"]]
        for variable, value in variables.items():
            variables[variable] = value.replace("/etc/revgate", f"{work}/etc")
        if "REVGATE_ENDPOINT" in variables:
            scheme = variables["REVGATE_ENDPOINT"].split(":")[0]
            variables["REVGATE_ENDPOINT"] = f"{scheme}://127.0.0.1:{pod.ports['client']}"
        done = subprocess.run([REVGATE, *arguments], env=variables, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done


def test_backups_are_saved_checked_and_pruned(work):
    drawn = objects(SECRET_TLS, AUTH, BACKUP, {"backup": {"keep": 2}})
    kept = work / "backup"
    kept.mkdir()
    with Pod(work, drawn) as pod:
        pod.wait_until_ready()
        assert run_script(container(drawn, f"{FULLNAME}-auth", "auth"), pod, work, SECRETS).returncode == 0
        for number in (29000001, 29000002, 29000003):
            save(drawn, pod, work, f"{FULLNAME}-backup-{number}")
        (kept / "of-somebody-else.db").touch()
        prune = container(drawn, f"{FULLNAME}-backup", "prune")
        prune["env"][0]["value"] = str(kept)
        done = run_script(prune, pod, work)
        assert done.returncode == 0, done
    left = sorted(path.name for path in kept.iterdir())
    assert left == [f"{FULLNAME}-backup-29000002.db", f"{FULLNAME}-backup-29000003.db", "of-somebody-else.db"]


def test_a_backup_is_restored_as_the_chart_s_readme_says(work):
    drawn = objects(BACKUP)
    readme = (CHART / "README.md").read_text()
    (manifest,) = re.findall(r"<<'POD'\n(.*?)\nPOD\n", readme, re.DOTALL)
    restore = yaml.safe_load(manifest)
    (work / "backup").mkdir()
    number, key = "29000001", {"key": "Zm9v"}
    with Pod(work, drawn) as pod:
        pod.wait_until_ready()
        ask(pod, "/v3/kv/put", {**key, "value": "b2xk"})
        save(drawn, pod, work, f"{FULLNAME}-backup-{number}")
        ask(pod, "/v3/kv/put", {**key, "value": "bmV3"})
        assert pod.stop() == 0
    (step,), (swap,) = restore["spec"]["initContainers"], restore["spec"]["containers"]
    places = [argument.replace("/backup/", f"{work}/backup/").replace("/data/", f"{work}/data/") for argument in step["args"]]
    places = [argument.replace(".default.", f".{NAMESPACE}.") for argument in places]
    subprocess.run([REVGATE, *places], check=True, timeout=60)
    subprocess.run([*swap["command"], swap["args"][0].replace("/data/", f"{work}/data/")], check=True, timeout=60)
    with Pod(work, drawn) as pod:
        pod.wait_until_ready()
        assert ask(pod, "/v3/kv/range", key)["kvs"][0]["value"] == "b2xk"
        assert pod.stop() == 0


def test_what_these_tests_need_is_here():
    assert shutil.which("openssl") and shutil.which("curl")
