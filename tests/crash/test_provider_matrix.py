"""Agents on real SDKs are SIGKILLed wherever they can die; what is recovered ends the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.providers.harness import PROVIDERS
from tests.crash.agents import KINDS
from tests.crash.provided import script_of
from tests.crash.test_matrix import check_all_end_alike, matrix
from tests.servers.serving import StrictServer


def _check(name: str, kind: str, url: str, folder: Path, *, stream: bool, stride: int) -> None:
    with StrictServer(PROVIDERS[name].wire(), script_of(kind)) as server:
        runs = matrix(
            url,
            folder,
            kind,
            stride=stride,
            provider=name,
            provider_url=server.url,
            stream=stream,
        )
        assert [str(refused) for refused in server.refused] == []
    check_all_end_alike(runs, kind)


@pytest.mark.parametrize(("kind", "stream"), [("sequential", False), ("parallel", True)])
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_killed_agent_goes_on_with_its_provider(
    name: str, kind: str, stream: bool, file_url: str, tmp_path: Path
) -> None:
    """At every seventh moment, with every SDK; no request of any process is refused."""
    _check(name, kind, file_url, tmp_path, stream=stream, stride=7)


@pytest.mark.soak
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROVIDERS)
def test_all_of_it_with_every_sdk(
    name: str, kind: str, stream: bool, file_url: str, tmp_path: Path
) -> None:
    """Every moment of every agent."""
    _check(name, kind, file_url, tmp_path, stream=stream, stride=1)
