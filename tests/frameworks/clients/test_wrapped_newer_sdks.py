"""Wrapped clients of the SDKs that the frameworks bring: openai 3 is on another HTTP module."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.unit.adapters.clients import stories
from tests.unit.adapters.clients.wrapped import WAYS, Way


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_run_is_recorded_resumed_and_replayed(way: Way) -> None:
    """Each call is made once; an interrupted run asks for the rest, a replay for nothing."""
    stories.a_run_is_recorded_resumed_and_replayed(way)


def test_the_openai_sdk_here_is_on_httpx2() -> None:
    """Else these tests would say what those of the other environment say."""
    assert version("openai").startswith("3.")
