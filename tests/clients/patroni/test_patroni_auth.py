"""Patroni with a name and a password. Switches authentication on and, at the end, off."""

import json

import pytest
from support import b64, call, post, prefix_end

PATRONI = {"username": "patroni", "password": "patroni's secret"}


def token(name, password):
    return post("/v3/auth/authenticate", {"name": name, "password": password})["token"]


@pytest.fixture(scope="module", autouse=True)
def authentication():
    for name, password in (("root", "root's secret"), ("patroni", PATRONI["password"])):
        post("/v3/auth/user/add", {"name": name, "password": password})
    post("/v3/auth/role/add", {"name": "root"})
    post("/v3/auth/role/add", {"name": "service"})
    permission = {"permType": "READWRITE", "key": b64("/service/"), "range_end": b64(prefix_end("/service/"))}
    post("/v3/auth/role/grant", {"name": "service", "perm": permission})
    post("/v3/auth/user/grant", {"user": "root", "role": "root"})
    post("/v3/auth/user/grant", {"user": "patroni", "role": "service"})
    post("/v3/auth/enable", {})
    yield
    post("/v3/auth/disable", {}, {"Authorization": token("root", "root's secret")})


def test_an_agent_with_a_password_works_and_renews_a_token_that_is_refused(agent):
    one = agent(etcd3=PATRONI)
    assert one._client._token
    assert one.attempt_to_acquire_leader()
    one._client._token = "not.a.token"
    assert one.update_leader(one.get_cluster(), 1), "it authenticates again"
    assert one._client._token != "not.a.token"
    assert one.get_cluster().leader.name == "one"


def test_the_texts_of_refusals(agent):
    key = {"key": b64("/service/a"), "value": ""}
    bearer = token(PATRONI["username"], PATRONI["password"])
    for headers, body, expected in (
        ({}, key, (400, 3, "etcdserver: user name is empty")),
        ({"Authorization": "not.a.token"}, key, (401, 16, "etcdserver: invalid auth token")),
        ({"Authorization": bearer}, {"key": b64("/other")}, (403, 7, "etcdserver: permission denied")),
    ):
        status, _, text = call("/v3/kv/put", body, headers)
        answer = json.loads(text)
        assert (status, answer["code"], answer["message"]) == expected
    status, _, text = call("/v3/auth/authenticate", {"name": "patroni", "password": "wrong"})
    assert json.loads(text)["message"] == "etcdserver: authentication failed, invalid user ID or password"
    assert post("/v3/kv/put", key, {"Authorization": f"Bearer {bearer}"})["header"]["revision"]
