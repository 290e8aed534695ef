"""One client of etcd3-py for each test."""

import etcd3
import pytest
from support import HOST, PORT


@pytest.fixture
def client():
    with etcd3.Client(HOST, PORT, timeout=15) as client:
        yield client
