"""What real SDKs raise when a provider fails, recorded and run again without either."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.providers.harness import PROVIDERS, under_test
from tests.crash.agents import Agent, Order
from tests.crash.provided import script_of
from tests.matrices import cells
from tests.replay import elsewhere
from tests.replay.test_replay_providers import NAMES, WAYS, check
from tests.servers.serving import Answer, Asked, CutBody, HalfStream, Raw, Script, Scripted, Status
from turnledger.ledger import Ledger, new_run_id
from turnledger.runtime import PromptEvaluationError

TOO_MUCH = Status(429, "slow down", {"retry-after": "0"})
HELLO = Answer("Hello.")


def failing(*faults: Scripted, turn: int = 1) -> Script:
    """These faults in one turn, one attempt after the other, and then the agent's own answers."""
    usual = script_of("one")

    def script(asked: Asked) -> Scripted:
        if asked.turn == turn and asked.attempt <= len(faults):
            return faults[asked.attempt - 1]
        return usual(asked)

    return script


_SCRIPTS: dict[str, tuple[Script, bool]] = {
    "429 and 500, then an answer": (failing(TOO_MUCH, Status(500), turn=2), True),
    "given up": (failing(TOO_MUCH, TOO_MUCH, TOO_MUCH), False),
    "a fault of ours": (failing(Status(400, "no such thing"), turn=2), False),
    "no entry": (failing(Status(401)), False),
    "a refusal": (failing(Answer(refusal="I would rather not.")), True),
    "an empty answer": (failing(Answer(None)), False),
    "no answer at all": (failing(*[Raw(b"<html>")] * 3), False),
    "cut short": (failing(CutBody(HELLO), turn=2), True),
    "half a stream": (failing(HalfStream(HELLO), turn=2), True),
}


@pytest.mark.parametrize(("name", "stream"), cells(list(PROVIDERS), [False, True]), ids=NAMES)
def test_failures_of_every_provider(name: str, stream: bool, tmp_path: Path) -> None:
    """However it failed, and whether it was tried again: the record says enough."""
    url, ended = str(tmp_path / "ledger.db"), {}
    runs: dict[str, UUID] = {}
    with under_test(name, stream=stream) as provider, Ledger.open(url) as ledger:
        for title, (script, _) in _SCRIPTS.items():
            runs[title] = new_run_id()
            ended[title] = _runs(provider, script, ledger, tmp_path, runs[title])
    plan = {"provider": name, "kind": "one", "stream": stream, "folder": str(tmp_path)}
    world = elsewhere.World()
    with Ledger.open(url) as ledger, elsewhere.no_clients(world):
        for title, run in runs.items():
            found = elsewhere.again(ledger, run, plan, world)
            try:
                check(elsewhere.told(found), ledger.head(run))
            except AssertionError as error:
                error.add_note(title)
                raise
            assert found[2].state.summary.status == ("completed" if ended[title] else "failed")
    assert world.touched == []
    surely = [title for title, (_, ends_well) in _SCRIPTS.items() if not ends_well]
    assert not any(ended[title] for title in surely if title != "an empty answer")
    assert ended["429 and 500, then an answer"]


def _runs(provider: Any, script: Script, ledger: Ledger, folder: Path, run: UUID) -> bool:
    """Whether the run ended well."""
    provider.server._attempts.clear()
    provider.tells(script)
    more = elsewhere.OPTIONS.get(provider.provider.name, {})
    agent = Agent("one", folder / f"effects-{run}", ledger, adapter=provider.adapter(**more))
    try:
        agent.execute(Order(), run_id=run)
    except PromptEvaluationError:
        return False
    return True


def test_every_provider_is_here() -> None:
    """One that is added to the harness is tested here too."""
    assert {name for name, _ in WAYS} == set(PROVIDERS)
