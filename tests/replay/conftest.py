"""What the tests of replay share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.replay.farm", "tests.replay.shepherd")

from tests.replay.farm import Farm, farm_at  # noqa: E402 - what it asserts is explained too


@pytest.fixture
def farm() -> Iterator[Farm]:
    """Agents that record in a ledger in memory."""
    with farm_at("memory://") as farm:
        yield farm
