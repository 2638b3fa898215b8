"""Overrides in a run: it goes on, and is replayed, with the texts that it was begun with."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says, task
from turnledger.ledger import (
    EvaluationStarted,
    Ledger,
    Record,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.runtime import Prompt, PromptMismatch, PromptOverridesStore, Reply, Tool, replay
from turnledger.runtime.agent.overrides import LedgerOverridesStore

NS, KEY = "tests", "task"
AUTHORED, DESCRIBED = "Do ${what}.", "Looks it up."


@dataclass(frozen=True)
class Ask:
    what: str = "it"


class Agent(ScriptedLoop[Ask, str]):
    """Calls its tool once, and dies in it if it is to; keeps what was sent to the model."""

    def __init__(
        self,
        ledger: Ledger,
        store: PromptOverridesStore | None = None,
        *,
        dies: bool = False,
        text: str = AUTHORED,
        describes: str = DESCRIBED,
        **options: Any,
    ) -> None:
        super().__init__(self._reply, ledger=ledger, overrides_store=store, **options)
        self._text, self._describes, self._dies = text, describes, dies
        self.sent: list[tuple[str, str]] = []

    def _reply(self, request: Any) -> Reply:
        self.sent.append((request.system, request.tools[0]["function"]["description"]))
        return says("done") if request.turn > 1 else calls(("c1", "look", "{}"))

    def _look(self, *, context: object) -> str:
        if self._dies:
            raise Crash
        return "seen"

    def create_prompt(self, request: Ask) -> Prompt[str]:
        tool = Tool[None, str](name="look", description=self._describes, handler=self._look)
        return task(request, self._text, [tool])

    @property
    def template(self) -> Any:
        return self.create_prompt(Ask()).template


class Texts:
    """A store without versions: a mapping that somebody edits."""

    def __init__(self, **texts: str) -> None:
        self.texts = {path.replace("__", ":"): text for path, text in texts.items()}

    def section_overrides(self, ns: str, key: str, tag: str) -> Mapping[str, str]:
        return self.texts


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "runs.db") as ledger:
        yield ledger


def interrupted(ledger: Ledger, store: PromptOverridesStore | None, **options: Any) -> UUID:
    run = new_run_id()
    with pytest.raises(Crash):
        Agent(ledger, store, dies=True, **options).execute(Ask(), run_id=run)
    return run


def begun(ledger: Ledger, run: UUID) -> list[Record]:
    return [record for record in ledger.read(run) if record.tag == EvaluationStarted.tag]


def test_a_run_goes_on_with_the_version_that_it_was_begun_with(ledger: Ledger) -> None:
    """Its texts are edited, deleted and its tag moved meanwhile: recovery sends the old ones."""
    store = LedgerOverridesStore(ledger)
    template = Agent(ledger).template
    store.set_section_override(template, tag="stable", path="task", body="Please do ${what}.")
    store.set_section_override(template, tag="stable", path="tool:look", body="Looks twice.")
    run = interrupted(ledger, store, overrides_tag="stable")
    event = begun(ledger, run)[0].event
    assert isinstance(event, EvaluationStarted)
    used = event.overrides
    assert used is not None
    assert (used.store, used.tag, used.version) == ("ledger", "stable", 3)
    store.set_section_override(template, path="task", body="Never do ${what}.")
    last = store.delete(template, path="tool:look")
    store.move_tag(NS, KEY, tag="stable", version=last)

    again = Agent(ledger, store, overrides_tag="stable")
    again.recover(run)
    assert len(again.sent) == 1
    assert "Please do it." in again.sent[0][0]
    assert again.sent[0][1] == "Looks twice."
    # The record decides, not the loop that replays: with any tag, and without a store.
    for loop in (Agent(ledger, store), Agent(ledger, store, overrides_tag="stable"), Agent(ledger)):
        replayed = replay(ledger, run, loop=loop).check()
        assert (replayed.recorded_prompts, loop.sent) == ((), [])
    fresh = Agent(ledger, store, overrides_tag="stable")
    fresh.execute(Ask())
    assert "Never do it." in fresh.sent[0][0]
    assert fresh.sent[0][1] == DESCRIBED


def test_a_run_is_replayed_where_its_prompts_texts_are_missing(ledger: Ledger) -> None:
    """An export of the run alone is enough: the recorded text is used, and that is told."""
    store = LedgerOverridesStore(ledger)
    template = Agent(ledger).template
    store.set_section_override(template, path="task", body="Please do ${what}.")
    store.set_section_override(template, path="tool:look", body="Looks twice.")
    run = interrupted(ledger, store)
    Agent(ledger, store).recover(run)
    file = io.BytesIO()
    export_runs(ledger, file, [run])
    file.seek(0)
    with Ledger.open("memory://") as other:
        import_runs(other, file)
        for at_hand in (None, LedgerOverridesStore(other)):
            replayed = replay(other, run, loop=Agent(other, at_hand)).check()
            assert len(replayed.recorded_prompts) == 1
        changed = replay(other, run, loop=Agent(other, text="Do ${what}, ${what}."))
        assert changed.ok, "an authored text that was overridden does not matter"


@pytest.mark.parametrize(
    "edited",
    [
        {"task": "Never do ${what}.", "tool:look": "Looks away."},
        {"task": "${unheard_of}"},
        {"tool:look": ""},
        {},
    ],
    ids=["other texts", "a text that can't be rendered", "no description", "nothing"],
)
def test_without_versions_a_run_goes_on_with_the_recorded_text(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, edited: dict[str, str]
) -> None:
    """The store has other texts now, or none that can be used; it is logged."""
    store = Texts(task="Please do ${what}.", tool__look="Looks twice.")
    run = interrupted(ledger, store)
    store.texts = edited
    again = Agent(ledger, store)
    with caplog.at_level(logging.WARNING, "turnledger.overrides"):
        again.recover(run)
    assert "the recorded text is used" in caplog.text
    assert "Please do it." in again.sent[0][0]
    assert again.sent[0][1] == "Looks twice."
    replayed = replay(ledger, run, loop=Agent(ledger, store)).check()
    assert len(replayed.recorded_prompts) == 1


def test_without_versions_the_same_texts_are_rendered_again(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is taken from the record that need not be."""
    store = Texts(task="Please do ${what}.")
    run = interrupted(ledger, store)
    Agent(ledger, store).recover(run)
    assert replay(ledger, run, loop=Agent(ledger, store)).check().recorded_prompts == ()
    assert caplog.text == ""


def test_a_change_of_the_program_is_a_mismatch_whatever_the_overrides(ledger: Ledger) -> None:
    """The recorded text stands in for overridden texts alone."""
    store = Texts(task="Please do ${what}.")
    run = interrupted(ledger, store)
    store.texts = {"task": "Never do ${what}."}
    with pytest.raises(PromptMismatch):
        Agent(ledger, store, describes="Looks anywhere.").recover(run)
    diverged = replay(ledger, run, loop=Agent(ledger, store, describes="Looks anywhere."))
    assert diverged.divergence is not None
    assert diverged.divergence.version == begun(ledger, run)[0].version


def test_a_run_that_was_begun_without_a_store_goes_on_without(ledger: Ledger) -> None:
    """The loop has got one since."""
    run = interrupted(ledger, None)
    again = Agent(ledger, Texts(task="Never do ${what}."))
    again.recover(run)
    assert "Do it." in again.sent[0][0]
    assert begun(ledger, run)[0].event.overrides is None  # type: ignore[union-attr]
    assert replay(ledger, run, loop=Agent(ledger, Texts(task="Never do ${what}."))).ok


def test_an_override_that_is_not_applied_is_logged(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """The program has changed the text that it replaces: the run is begun with the new one."""
    store = LedgerOverridesStore(ledger)
    store.set_section_override(Agent(ledger).template, path="task", body="Please do ${what}.")
    loop = Agent(ledger, store, text="Just do ${what}.")
    with caplog.at_level(logging.WARNING, "turnledger.overrides"):
        loop.execute(Ask())
    assert "the override of task is not applied" in caplog.text
    assert "Just do it." in loop.sent[0][0]
