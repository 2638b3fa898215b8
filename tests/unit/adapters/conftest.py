"""What the tests of adapters share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quiet_litellm import litellm_as_it_is


@pytest.fixture
def real_litellm() -> Iterator[None]:
    """LiteLLM as it is."""
    with litellm_as_it_is():
        yield
