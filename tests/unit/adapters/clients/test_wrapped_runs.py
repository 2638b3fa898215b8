"""Wrapped clients in a run: every SDK, sync and async, whole and streamed."""

from __future__ import annotations

import pytest

from tests.unit.adapters.clients import stories
from tests.unit.adapters.clients.wrapped import WAYS, Way, cells


@pytest.mark.process
@pytest.mark.parametrize("way", cells(WAYS))
def test_a_run_is_recorded_resumed_and_replayed(way: Way) -> None:
    """Each call is made once; an interrupted run asks for the rest, a replay for nothing."""
    stories.a_run_is_recorded_resumed_and_replayed(way)
