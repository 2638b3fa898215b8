"""Agents on real SDKs are SIGKILLed wherever they can die; what is recovered ends the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.conformance.providers.harness import PROVIDERS
from tests.crash.agents import KINDS
from tests.crash.provided import script_of
from tests.crash.test_matrix import check_all_end_alike, matrix
from tests.matrices import cells
from tests.servers.serving import StrictServer
from tests.soaking import Search


def _check(name: str, kind: str, url: str, folder: Path, *, stream: bool, stride: int) -> int:
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
    return len(runs)


@pytest.mark.parametrize(
    ("name", "case"), cells(tuple(PROVIDERS), [("sequential", False), ("parallel", True)])
)
def test_a_killed_agent_goes_on_with_its_provider(
    name: str, case: tuple[str, bool], file_url: str, tmp_path: Path
) -> None:
    """At every seventh moment, with every SDK; no request of any process is refused."""
    kind, stream = case
    _check(name, kind, file_url, tmp_path, stream=stream, stride=7)


@pytest.mark.soak
def test_all_of_it_with_every_sdk(tmp_path: Path) -> None:
    """Every moment of every agent, streamed and not."""
    agents = [*product(PROVIDERS, KINDS, (False, True))]
    search = Search("moments-providers", goal={"agents": len(agents)})
    for number in search.rounds(share=0.03):
        name, kind, stream = agents[number % len(agents)]
        folder = tmp_path / str(number)
        folder.mkdir()
        url = str(folder / "ledger.db")
        with search.blaming(f"{name}, {kind}, {stream=}"):
            moments = _check(name, kind, url, folder, stream=stream, stride=1)
        search.count(agents=1, moments=moments)
    assert search.problems == []
