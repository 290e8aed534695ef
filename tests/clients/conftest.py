"""A key prefix for each test, so that none sees another's keys."""

import pytest


@pytest.fixture
def prefix(request):
    return f"{request.node.name}/"
