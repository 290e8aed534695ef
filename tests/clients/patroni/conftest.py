"""Patroni's own store of a cluster, as its agents make it from their configuration."""

import pytest
from patroni.dcs import get_dcs
from support import HOST, PORT


@pytest.fixture
def agent(request):
    """Makes the store of one agent; all agents of a test are of one cluster."""

    def make(name="one", ttl=30, loop_wait=10, **more):
        etcd3 = {"host": f"{HOST}:{PORT}", **more.pop("etcd3", {})}
        config = {
            "scope": request.node.name,
            "namespace": "/service/",
            "name": name,
            "ttl": ttl,
            "loop_wait": loop_wait,
            "retry_timeout": 10,
            "etcd3": etcd3,
            **more,
        }
        return get_dcs(config)

    return make
