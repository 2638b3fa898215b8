"""The one fixture over all providers, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.providers.harness import PROVIDERS, UnderTest, under_test

_WAYS = [(name, stream) for name in PROVIDERS for stream in (False, True)]


@pytest.fixture(params=_WAYS, ids=[f"{name}{'-stream' * stream}" for name, stream in _WAYS])
def provider(request: pytest.FixtureRequest) -> Iterator[UnderTest]:
    """Every provider in turn, with its server."""
    name, stream = request.param
    with under_test(name, stream=stream) as one:
        yield one
