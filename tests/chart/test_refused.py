"""Values that cannot be, and what is said of them."""

import pytest

from support import AUTH, BACKUP, MONITORING, MUTUAL_TLS, ONE_PORT, SECRET_TLS, merged, refusal

JWT = {"auth": {"token": {"type": "jwt"}}}


def client(**values):
    return {"tls": {"client": values}}


@pytest.mark.parametrize("values, words", [
    # By values.schema.json, each on its own.
    ({"replicaCount": 2}, "at '/replicaCount': value must be one of 1, 3, 5"),
    ({"replicaCount": "1"}, "at '/replicaCount': value must be one of 1, 3, 5"),
    ({"replicas": 1}, "additional properties 'replicas' not allowed"),
    ({"config": {"quota": 1}}, "at '/config': additional properties 'quota' not allowed"),
    ({"config": {"quotaBackendBytes": "8GB"}}, "at '/config/quotaBackendBytes': got string, want integer"),
    ({"config": {"logLevel": "loud"}}, "at '/config/logLevel': value must be one of 'debug', 'info', 'warn', 'error'"),
    ({"config": {"autoCompaction": {"mode": "revision", "retention": "1h"}}}, "at '/config/autoCompaction/retention': '1h' does not match pattern"),
    ({"config": {"extraArgs": ["cors=*"]}}, "at '/config/extraArgs/0': 'cors=*' does not match pattern '^--[a-z]'"),
    ({"config": {"settings": {"Bad_Name": "x"}}}, "invalid propertyName 'Bad_Name'"),
    ({"config": {"settings": {"cors": {"a": 1}}}}, "at '/config/settings/cors': "),
    ({"config": {"settings": {"data-dir": "/x"}}}, "config.settings has data-dir, which the chart sets itself"),
    ({"config": {"settings": {"log-level": "debug"}}}, "config.settings has log-level, for which config has a name of its own"),
    ({"service": {"port": 0}}, "at '/service/port': minimum: got 0, want 1"),
    ({"service": {"type": "ExternalName"}}, "at '/service/type': value must be one of"),
    ({"pdb": {"maxUnavailable": 2}}, "at '/pdb/maxUnavailable': maximum: got 2, want 1"),
    ({"persistence": {"size": "big"}}, "at '/persistence/size': 'big' does not match pattern"),
    ({"persistence": {"accessModes": []}}, "at '/persistence/accessModes': minItems: got 0, want 1"),
    ({"backup": {"keep": 0}}, "at '/backup/keep': minimum: got 0, want 1"),
    ({"backup": {"schedule": "daily"}}, "at '/backup/schedule': 'daily' does not match pattern"),
    ({"image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match pattern"),
    # By one another.
    ({"replicaCount": 3}, "replicaCount is 3: revgate has one voting member for now"),
    ({"replicaCount": 5}, "replicaCount is 5: revgate has one voting member for now"),
    ({"config": {"drainTimeoutSeconds": 60}}, "a member would be killed while it waits for its clients. Make the first longer."),
    (client(enabled=True), "set tls.client.existingSecret, or tls.client.certManager.enabled"),
    (client(enabled=True, certManager={"enabled": True}), "needs tls.client.certManager.issuerRef.name"),
    (merged(SECRET_TLS, client(certManager={"enabled": True, "issuerRef": {"name": "i"}})), "the certificate comes from one of them"),
    (client(existingSecret="s"), "clients would be served without TLS"),
    (client(clientCertAuth=True), "clients would be served without TLS"),
    (merged(SECRET_TLS, client(clientCertAuth=True), AUTH, BACKUP), "with auth.enabled and backup.enabled needs tls.client.jobsSecret"),
    (merged(MUTUAL_TLS, MONITORING, ONE_PORT), "needs metrics.ownPort.enabled"),
    ({"auth": {"enabled": True}}, "set auth.rootPassword, or auth.existingSecret"),
    (merged(AUTH, {"auth": {"existingSecret": "s"}}), "the password comes from one of them"),
    ({"auth": {"rootPassword": "p"}}, "everybody could write"),
    (JWT, "set auth.token.jwt.existingSecret"),
    ({"metrics": {"ownPort": {"port": 2380}}}, "metrics.ownPort.port is 2380"),
    ({"service": {"nodePort": 30000}}, "Set service.type to NodePort or LoadBalancer"),
])
def test_refused_and_why(values, words):
    said = refusal(values)
    assert said is not None and words in said, said
