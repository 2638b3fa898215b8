"""Wrapped clients of the SDKs that the frameworks bring: openai 3 is on another HTTP module."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.unit.adapters.clients import stories
from tests.unit.adapters.clients.test_wrapped_retries import (  # noqa: F401
    _no_backoff,
    test_a_broken_connection_is_raised_again_from_the_record,
    test_a_busy_server_is_asked_again_and_each_attempt_is_recorded,
    test_a_retry_of_the_sdks_own_is_one_more_attempt_of_the_same_call,
    test_a_run_with_a_fallback_model_is_resumable,
)
from tests.unit.adapters.clients.test_wrapped_streams import (  # noqa: F401
    test_a_stream_that_breaks_is_an_outcome_with_what_came,
    test_a_stream_that_its_reader_leaves_is_an_outcome_as_far_as_it_came,
    test_the_record_is_on_disk_when_the_end_is_handed_on,
)
from tests.unit.adapters.clients.wrapped import WAYS, Way, cells


@pytest.mark.process
@pytest.mark.parametrize("way", cells(WAYS))
def test_a_run_is_recorded_resumed_and_replayed(way: Way) -> None:
    """Each call is made once; an interrupted run asks for the rest, a replay for nothing."""
    stories.a_run_is_recorded_resumed_and_replayed(way)


def test_the_openai_sdk_here_is_on_httpx2() -> None:
    """Else these tests would say what those of the other environment say."""
    assert version("openai").startswith("3.")
