"""How the histories of agents were recorded: real loops, killed and recovered, with real effects.

    python -m tests.replay.executing FOLDER

writes them into a folder of yours. It never touches tests/replay/histories/agents and
tests/replay/histories/diverging: those are what programs of their time did, and today's program
must do the same again, or, for those in `diverging`, must be caught doing something else.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from uuid import UUID

from tests.crash.agents import KINDS, SCRIPTS, Agent, Order, Paid, Pay, decide_approvals, reply_of
from turnledger.ledger import ANY, CustomEvent, Ledger, ToolCallDecided, export_runs, new_run_id
from turnledger.runtime import (
    DecisionRequiredError,
    MainLoopConfig,
    Prompt,
    PromptEvaluationError,
    PromptTemplate,
    RecoveryConfig,
    Reply,
    Session,
    ThrottlePolicy,
    Tool,
)
from turnledger.runtime.agent.overrides import LedgerOverridesStore

HISTORIES = Path(__file__).parent / "histories"
AGENTS = HISTORIES / "agents"
DIVERGING = HISTORIES / "diverging"


class KilledError(BaseException):
    """The process is gone."""


class OverloadedError(Exception):
    """A provider's own error."""

    status_code = 503
    retryable = True


class Unreliable(Agent):
    """Its model fails twice before it answers."""

    _failures = 2

    def _reply(self, request: Any) -> Reply:
        if self._failures:
            self._failures -= 1
            raise OverloadedError("come back later")
        return super()._reply(request)


class Hopeless(Agent):
    """Its model never answers."""

    def _reply(self, request: Any) -> Reply:
        raise ValueError("no such model")


class Silent(Agent):
    """Its model answers with nothing."""

    def _reply(self, request: Any) -> Reply:
        return Reply()


class Unencodable(Agent):
    """Its requests can't be built."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._adapter.encode = self._encode  # type: ignore[method-assign]

    def _encode(self, request: Any) -> Any:
        raise ValueError("no such picture")


class Hasty(Agent):
    """Its model answers twice with something else than was asked for."""

    def __init__(self, kind: str, *args: Any, **options: Any) -> None:
        config = MainLoopConfig(output_retries=2)
        super().__init__("structured", *args, config=config, **options)

    def _reply(self, request: Any) -> Reply:
        right = reply_of("structured", min(request.turn, 2), request.system)
        said = {2: "It is paid.", 3: '{"paid": "all of it", "by": "me"}'}.get(request.turn)
        return right if said is None else replace(right, text=said)


class OtherText(Agent):
    """Its prompt has another text."""

    def create_prompt(self, request: Order) -> Prompt[Any]:
        return super().create_prompt(Order(request.customer + " Ltd"))


class Accepting(OtherText):
    """Another text, and a model that goes on from what was said, whatever the turn's number."""

    def _reply(self, request: Any) -> Reply:
        said = sum(turn.role == "assistant" for turn in request.turns)
        return reply_of(self.kind, said + 1, request.system)


_MADE: dict[str, type[Agent]] = {
    "accepting": Accepting,
    "hasty": Hasty,
    "unreliable": Unreliable,
    "hopeless": Hopeless,
    "silent": Silent,
    "unencodable": Unencodable,
}


def agent(kind: str, folder: Path, ledger: Ledger, **options: Any) -> Agent:
    """The agent of a kind, as it is today."""
    make = _MADE.get(kind, Agent)
    script = kind if kind in SCRIPTS else "sequential"
    made = make(
        script, folder / "effects", ledger, recovery=RecoveryConfig(max_attempts=50), **options
    )
    made._adapter.throttle = ThrottlePolicy(jitter=False, base_delay=_NO_DELAY, max_delay=_NO_DELAY)
    return made


_NO_DELAY = ThrottlePolicy().base_delay * 0


def _dying(name: str) -> Callable[[str], None]:
    def point(here: str) -> None:
        if here == name:
            raise KilledError(name)

    return point


def _plainly(kind: str, folder: Path, ledger: Ledger) -> UUID:
    run = new_run_id()
    agent(kind, folder, ledger).execute(Order(), run_id=run)
    return run


def _killed(where: str, policy: str = "retry") -> Callable[[str, Path, Ledger], UUID]:
    def record(kind: str, folder: Path, ledger: Ledger) -> UUID:
        run = new_run_id()
        with contextlib.suppress(KilledError):
            agent(kind, folder, ledger, on_interrupt=policy, point=_dying(where)).execute(
                Order(), run_id=run
            )
        ledger.append(run, CustomEvent(kind="acme.note", data={"seen": True}), ANY)
        agent(kind, folder, ledger, on_interrupt=policy).recover(run)
        return run

    return record


def _asked(kind: str, folder: Path, ledger: Ledger) -> UUID:
    run = new_run_id()
    options = {"on_interrupt": "ask"}
    with contextlib.suppress(KilledError):
        agent(kind, folder, ledger, point=_dying("in tool a2, after"), **options).execute(
            Order(), run_id=run
        )
    with contextlib.suppress(DecisionRequiredError):
        agent(kind, folder, ledger, **options).recover(run)
    decision = ToolCallDecided(call_id="a2", decision="completed", text="It was paid.")
    ledger.append(run, decision, ANY)
    agent(kind, folder, ledger, **options).recover(run)
    return run


def _approved(kind: str, folder: Path, ledger: Ledger) -> UUID:
    """It waits for approval; one payment is approved, one denied, one edited."""
    run = new_run_id()
    with contextlib.suppress(DecisionRequiredError):
        agent(kind, folder, ledger, on_interrupt="ask").execute(Order(), run_id=run)
    decide_approvals(ledger, run, ["a2", "a3", "a4"])
    agent(kind, folder, ledger, on_interrupt="ask").recover(run)
    return run


def _overridden(kind: str, folder: Path, ledger: Ledger) -> UUID:
    """Killed in a tool; the texts that it was begun with are edited before it is recovered."""
    run, store = new_run_id(), LedgerOverridesStore(ledger)
    options: dict[str, Any] = {"overrides_store": store, "overrides_tag": "stable"}
    template = agent(kind, folder, ledger).create_prompt(Order()).template
    section, tool = template.sections[0].key, template.sections[0].tools[0].name
    store.set_section_override(template, tag="stable", path=section, body="Pay all, at once.")
    store.set_section_override(template, tag="stable", path=f"tool:{tool}", body="Pays at once.")
    with contextlib.suppress(KilledError):
        agent(kind, folder, ledger, point=_dying("in tool a2, after"), **options).execute(
            Order(), run_id=run
        )
    last = store.set_section_override(template, path=section, body="Pay nothing.", set_by="ann")
    store.move_tag(template.ns, template.key, tag="stable", version=last)
    agent(kind, folder, ledger, **options).recover(run)
    return run


def _chat(kind: str, folder: Path, ledger: Ledger) -> UUID:
    """Three turns, the last of which was killed in its tool and recovered."""
    first, second, third = (new_run_id() for _ in range(3))
    agent(kind, folder, ledger).execute(Order(), run_id=first)
    agent(kind, folder, ledger).execute(Order("beta"), run_id=second, continues=first)
    with contextlib.suppress(KilledError):
        agent(kind, folder, ledger, point=_dying("in tool a1, after")).execute(
            Order("gamma"), run_id=third, continues=second
        )
    agent(kind, folder, ledger).recover(third)
    return third


def _changed(choice: Literal["recorded", "accept"]) -> Callable[[str, Path, Ledger], UUID]:
    """Killed in a tool; recovered by a program with another prompt, as a person chose."""

    def record(kind: str, folder: Path, ledger: Ledger) -> UUID:
        run = new_run_id()
        with contextlib.suppress(KilledError):
            agent("sequential", folder, ledger, point=_dying("in tool a2, after")).execute(
                Order(), run_id=run
            )
        agent("accepting", folder, ledger).recover(run, prompt=choice, decided_by="ann")
        return run

    return record


def _failed(kind: str, folder: Path, ledger: Ledger) -> UUID:
    run = new_run_id()
    with contextlib.suppress(PromptEvaluationError):
        agent(kind, folder, ledger).execute(Order(), run_id=run)
    return run


# What each history is, by its name: the agent that replays it, how it was recorded, and whether
# its calls were to be asked about.
RECORDED: dict[str, tuple[str, Callable[[str, Path, Ledger], UUID], str]] = {
    **{kind: (kind, _plainly, "retry") for kind in KINDS},
    "killed-in-a-tool": ("sequential", _killed("in tool a2, after"), "retry"),
    "killed-in-a-model-call": ("sequential", _killed("in model call 2"), "retry"),
    "unknown-outcome": ("sequential", _killed("in tool a2, after", "fail"), "fail"),
    "asked-and-decided": ("sequential", _asked, "ask"),
    "retried-model-calls": ("unreliable", _plainly, "retry"),
    "failed-model-call": ("hopeless", _failed, "retry"),
    # By programs of catalogue 2, which tell in fields what failed.
    "empty-reply": ("silent", _failed, "retry"),
    "failed-request": ("unencodable", _failed, "retry"),
    # By programs of catalogue 4, with the stream of the prompt that it was begun with.
    "edited-overrides": ("sequential", _overridden, "retry"),
    # By programs of catalogue 5: the last run of the history, and the two before it.
    "chat": ("chat", _chat, "retry"),
    "approvals": ("approvals", _approved, "ask"),
    "rejected-output": ("hasty", _plainly, "retry"),
    # By two programs; replayed by the one that began it, and by the one that went on with it.
    "recorded-prompt": ("sequential", _changed("recorded"), "retry"),
    "accepted-prompt": ("accepting", _changed("accept"), "retry"),
}


# --- agents that were otherwise when they were recorded ----------------------------------------


class OtherOrder(Agent):
    def create_prompt(self, request: Order) -> Prompt[Any]:
        prompt = super().create_prompt(request)
        (section,) = prompt.template.sections
        section.tools = tuple(reversed(section.tools))
        return prompt


class OtherTool(Agent):
    def create_prompt(self, request: Order) -> Prompt[Any]:
        prompt = super().create_prompt(request)
        (section,) = prompt.template.sections
        refund = Tool[Pay, Any](name="refund", description="Pay back.", handler=self._refuse)
        section.tools = (*section.tools, refund)
        return Prompt(PromptTemplate(ns="crash", key=self.kind, sections=[section])).bind(
            *prompt.params
        )


class OtherReducer(Agent):
    def create_session(self) -> Session:
        session = super().create_session()
        session[Paid].register(Paid, _doubled)
        return session


def _doubled(before: tuple[Paid, ...], event: Paid, *, context: Any) -> tuple[Paid, ...]:
    return (*before, event, event)


class OtherModel(Agent):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._adapter.model = "another"


OTHERWISE: dict[str, tuple[type[Agent], str]] = {
    "another-text": (OtherText, "prompt text changed"),
    "another-order-of-tools": (OtherOrder, "tool order changed"),
    "one-tool-more": (OtherTool, "tool removed"),
    "another-reducer": (OtherReducer, "reducer changed"),
    "another-model": (OtherModel, "model changed"),
}


def main(folder: Path) -> None:
    (folder / "agents").mkdir(parents=True)
    (folder / "diverging").mkdir()
    for name, (kind, record, _) in RECORDED.items():
        _write(folder / "agents" / f"{name}.jsonl", kind, record)
    for name, (make, _) in OTHERWISE.items():

        def record(kind: str, place: Path, ledger: Ledger, _make: Any = make) -> UUID:
            run = new_run_id()
            _make(kind, place / "effects", ledger).execute(Order(), run_id=run)
            return run

        _write(folder / "diverging" / f"{name}.jsonl", "sequential", record)


def _write(path: Path, kind: str, record: Callable[[str, Path, Ledger], UUID]) -> None:
    with (
        TemporaryDirectory() as place,
        Ledger.open("memory://") as ledger,
        path.open("wb") as out,
    ):
        ledger.worker = "recorder"
        run = record(kind, Path(place), ledger)
        export_runs(ledger, out, [run, *(info.run_id for info in ledger.runs(kind="prompt"))])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
