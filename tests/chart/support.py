"""Draws the chart with Helm's own engine, and runs what it draws as plain processes."""

import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import helm_python as helm
import yaml

ROOT = pathlib.Path(__file__).parents[2]
CHART = ROOT / "charts" / "revgate"
REVGATE = os.environ.get("REVGATE", str(ROOT / "target" / "release" / "revgate"))
READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30

RELEASE, NAMESPACE, FULLNAME = "kv", "prod", "kv-revgate"

SECRET_TLS = {"tls": {"client": {"enabled": True, "existingSecret": "certificate"}}}
MANAGED_TLS = {"tls": {"client": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "issuer"}}}}}
MUTUAL_TLS = {
    "tls": {"client": {"enabled": True, "existingSecret": "certificate", "clientCertAuth": True, "jobsSecret": "jobs"}},
}
ONE_PORT = {"metrics": {"ownPort": {"enabled": False}}}
PASSWORD = 'all of " and \\ and ü'
AUTH = {"auth": {"enabled": True, "rootPassword": PASSWORD}}
BACKUP = {"backup": {"enabled": True}}
MONITORING = {
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "runbookUrl": "https://wiki.example/revgate"},
        "dashboards": {"enabled": True},
    }
}


def cluster(replicas):
    return {"replicaCount": replicas, "experimental": {"cluster": replicas > 1}}


def merged(*all_values):
    """Values over values, as several `--values` files are."""
    result = {}
    for values in all_values:
        for key, value in values.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


def texts(*values):
    """What every template draws, by name."""
    with helm.Chart.load(str(CHART)) as chart:
        drawn = chart.render(merged(*values), name=RELEASE, namespace=NAMESPACE)
    return {name.split("/", 2)[2]: text for name, text in drawn.items()}


def objects(*values):
    """All objects that the chart draws."""
    drawn = texts(*values)
    return [document for name, text in drawn.items() if name.endswith(".yaml") for document in yaml.safe_load_all(text) if document]


def find(all_objects, kind, name=FULLNAME):
    """The one object of that kind and name."""
    (found,) = [each for each in all_objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def settings(all_objects):
    """The member's configuration file, read."""
    return yaml.safe_load(find(all_objects, "ConfigMap", f"{FULLNAME}-config")["data"]["revgate.yaml"])


def refusal(*values):
    """Why Helm refuses the values."""
    try:
        objects(*values)
    except helm.HelmError as error:
        return str(error)
    return None


def pods(all_objects):
    """(what, specification) of each pod that the objects would make."""
    for each in all_objects:
        spec = each.get("spec", {})
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], spec
        elif each["kind"] == "CronJob":
            yield each["metadata"]["name"], spec["jobTemplate"]["spec"]["template"]["spec"]
        elif each["kind"] in ("StatefulSet", "Job"):
            yield each["metadata"]["name"], spec["template"]["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(container, pod_name, secrets=None):
    """The variables that the container would have; `secrets` has the values of secrets, by key."""
    result = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom")
        if source is None:
            result[variable["name"]] = variable.get("value") or ""
        elif "fieldRef" in source:
            result[variable["name"]] = pod_name
        else:
            result[variable["name"]] = secrets[source["secretKeyRef"]["key"]]
    return result


def expanded(argument, variables):
    """$(NAME) as the kubelet puts it in."""
    return re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], argument)


class Pod:
    """A member's container as a process: the same arguments and variables, on ports and paths that are free here."""

    def __init__(self, work, all_objects):
        (_, spec) = next((name, spec) for name, spec in pods(all_objects) if name == FULLNAME)
        (self.container,) = spec["containers"]
        self.ports = {port["name"]: free_port() for port in self.container["ports"]}
        name = f"{FULLNAME}-0"
        (work / "etc" / "config").mkdir(parents=True, exist_ok=True)
        for file, text in find(all_objects, "ConfigMap", f"{FULLNAME}-config")["data"].items():
            (work / "etc" / "config" / file).write_text(text)
        variables = environment(self.container, name)
        arguments = [self.here(expanded(argument, variables), work) for argument in self.container["args"]]
        self.log = open(work / "revgate.log", "w")
        self.process = subprocess.Popen(
            [REVGATE, *arguments], env=variables, cwd="/", stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )

    def here(self, argument, work):
        for port in self.container["ports"]:
            argument = argument.replace(f"0.0.0.0:{port['containerPort']}", f"127.0.0.1:{self.ports[port['name']]}")
        return argument.replace("/data", f"{work}/data").replace("/etc/revgate", f"{work}/etc")

    def probe(self, name):
        """Whether the container's probe succeeds, as the kubelet asks: it looks at no certificate."""
        action = self.container[name]
        if "tcpSocket" in action:
            with socket.create_connection(("127.0.0.1", self.ports[action["tcpSocket"]["port"]]), timeout=5):
                return True
        get = action["httpGet"]
        url = f"{get.get('scheme', 'HTTP').lower()}://127.0.0.1:{self.ports[get['port']]}{get['path']}"
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        with urllib.request.urlopen(url, timeout=5, context=trusting) as answer:
            return 200 <= answer.status < 400

    def wait_until_ready(self):
        end = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                # A probe that only connects succeeds before anything is served; the log says when that is.
                is_served = f":{self.ports['client']}" in self.said()
                if is_served and self.probe("startupProbe") and self.probe("readinessProbe"):
                    return
            except (OSError, urllib.error.URLError):
                pass
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.05)

    def said(self):
        return pathlib.Path(self.log.name).read_text()

    def stop(self):
        """SIGTERM, as the kubelet's; its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        finally:
            self.process.kill()
            self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()


def run_script(container, pod, work, secrets=None):
    """A job's script in the shell that is here, with its endpoint put to the pod's."""
    variables = environment(container, "job", secrets)
    if "ENDPOINT" in variables:
        scheme = variables["ENDPOINT"].split(":")[0]
        variables["ENDPOINT"] = f"{scheme}://127.0.0.1:{pod.ports['client']}"
        variables["TLS_FLAGS"] = variables["TLS_FLAGS"].replace("/etc/revgate", f"{work}/etc")
    _, _, script = [*container["command"], *container["args"]]
    variables["PATH"] = os.environ["PATH"]
    return subprocess.run(["/bin/sh", "-c", script], env=variables, capture_output=True, text=True, timeout=60)


def make_certificates(work):
    """An authority, and a certificate for this machine: as the secrets would be mounted."""
    made = work / "etc" / "tls"
    made.mkdir(parents=True)
    authority = ["-x509", "-keyout", made / "ca.key", "-out", made / "ca.crt", "-subj", "/CN=authority"]
    subject = ["-subj", "/CN=kv", "-addext", "subjectAltName=IP:127.0.0.1", "-CA", made / "ca.crt", "-CAkey", made / "ca.key"]
    leaf = ["-x509", "-keyout", made / "tls.key", "-out", made / "tls.crt", *subject, "-addext", "basicConstraints=critical,CA:FALSE"]
    for request in (authority, leaf):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        subprocess.run(["openssl", "req", *key, *request], check=True, capture_output=True)
    shutil.copytree(made, work / "etc" / "ca")
    shutil.copytree(made, work / "etc" / "jobs-tls")


def promtool_agrees(rules, work):
    path = work / "rules.yaml"
    path.write_text(json.dumps({"groups": rules}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
