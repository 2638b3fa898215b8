"""Renders every command as people see it, on terminals of 80 and 120 columns.

`docs.generate` writes the screens to docs/reference/screens, for people to look at; a test
compares them. The ledger, its times and its ids are the same every time.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from uuid import UUID

from turnledger.adapters.cli import turnledger
from turnledger.adapters.cli.commands import SECTIONS
from turnledger.ledger import (
    ANY,
    NEW,
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    PromptOverrideSet,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    prompt_stream_id,
    run_id_for,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.events.messages import ToolCallRecord

WIDTHS = (80, 120)
# 2026-03-02, 09:00 UTC.
MORNING = 1_772_442_000_000_000
MINUTE = 60_000_000

AGENT = """\
from dataclasses import dataclass

import turnledger.runtime as tl
from turnledger import Agent, tool


@dataclass(frozen=True)
class Trip:
    city: str


def book(params: Trip, *, context: tl.ToolContext) -> tl.ToolResult[None]:
    return tl.ToolResult(f"Booked a room in {params.city}.")


def model(request: tl.Request) -> tl.Reply:
    city = "Porto" if "Porto" in str(request.history.to_list()) else "Lisbon"
    if request.turn == 1:
        return tl.Reply(tool_calls=(tl.ToolCall("call_1", "book", f'{{"city": "{city}"}}'),))
    return tl.Reply(text=f"You have a room in {city}.")


class Traveller(tl.MainLoop[Trip, str]):
    def create_session(self):
        return tl.Session(bus=self._bus, clock=self._clock)

    def create_prompt(self, request):
        tool = tl.Tool[Trip, None](name="book", description="Book a room.", handler=book)
        task = tl.MarkdownSection(title="Task", template="Book it.", key="task", tools=[tool])
        template = tl.PromptTemplate[str](ns="travel", key="book", sections=[task])
        asked = tl.MessageBuilder.next_step(None).add_text(f"Book {request.city}.")
        return tl.Prompt(template).with_messages(asked)


def loop(ledger):
    adapter, bus = tl.ScriptedAdapter(model), tl.InProcessEventBus()
    return Traveller(adapter=adapter, bus=bus, ledger=ledger, clock=ledger.clock)


@tool(needs_approval=lambda city: city == "Porto")
def reserve(city: str) -> str:
    '''Reserve a room.'''
    return f"A room in {city} is yours."


def answer(request: tl.Request) -> tl.Reply:
    city = "Porto" if "Porto" in str(request.history.to_list()) else "Lisbon"
    if request.turn == 1:
        return tl.Reply(tool_calls=(tl.ToolCall("call_1", "reserve", f'{{"city": "{city}"}}'),))
    return tl.Reply(text=f"You have a room in {city}.")


agent = Agent("travel/agent", model=answer, instructions="Book rooms.", tools=[reserve])
"""

# What is typed, by the command line that reads it.
TYPED = {
    "chat --app travel:agent --name trip": "Book Lisbon.\nNow Porto.\napprove\n",
    "run --app travel:agent - --continues @last": "Book Lisbon, as before.",
}

# By section: command lines. What follows ">" is a file: the terminal shows stderr alone.
SCREENS: dict[str, tuple[str, ...]] = {
    "look": (
        "runs",
        "runs --status abandoned",
        "show {triage}",
        "show customer=acme 3",
        "log {triage}",
        "log {triage} --type run.parked",
        "tail --after 38",
        "search invoice",
        "search 'should be' {triage}",
        "search '4711: 240' {triage} -o jsonl",
        "search unicorn",
        "shape {triage}",
        "shape order-17",
        "messages {triage}",
        "tools {triage}",
        "tools {failed}",
        "tools order-17",
        "tools --all",
        "timeline {triage}",
        "timeline order-17",
        "usage {triage}",
        "usage order-17",
        "usage",
        "usage --by-day",
        "state {triage} --path /usage/total",
        "changes {triage} 7",
        "diff {triage} 4 7",
        "blame {triage} /summary/status",
        "log 01",
        "log 99999999",
        "log order-18",
        "log @last --type message.append",
    ),
    "what-if": (
        "fork {triage} --at 9",
        "fork {booking} --user 'Book Porto instead.'",
        "fork {booking} --at turn:1",
        "fork {booking} --tool call_9 --result 'There is no room.'",
        "replay {booking} --app travel:loop",
        "replay {triage}",
        "replay {booking} --app travel:loop --live tool:book",
        "compare {triage} {failed}",
        "compare {triage} {failed} --state 7:7",
    ),
    "work": (
        "run --app travel:agent 'Book Lisbon.'",
        "run --app travel:agent - --continues @last",
        "run --app travel:agent 'Book Porto.'",
        "resolve @last call_1 --approve --by ann",
        "recover @last --app travel:agent",
        "chat --app travel:agent --name trip",
        "queue",
        "worker --app travel:loop",
        "pending",
        "pending {triage}",
        "resolve {waiting} call_2 --completed '{{\"paid\": true}}' --by ann",
        "resolve {waiting} call_7 --retry",
        "resolve order-17 settle#1/pay:17 --retry --by ann",
        "recover order-17 --app travel:agent",
        "fork {booking} --user 'Book Porto instead.'",
        "recover @last --app travel:loop",
        "recover --all --app travel:loop",
        "recover @last --app travel:loop -o json",
        "abandon {quiet} --reason 'asked twice'",
        "abandon {quiet}",
        "append {triage} note.json --expect any",
        "prompts list",
        "prompts show support/triage",
        "prompts diff support/triage 0 latest",
        "prompts blame support/triage tone",
        "prompts runs support/triage",
        "prompts set support/triage tone 'Be brief.' --by ann",
        "prompts tag support/triage stable latest --by ann",
    ),
    "keep": (
        "verify",
        "verify {triage}",
        "seal > seal.json",
        "verify --seal seal.json",
        "backup monday.db",
        "doctor --db memory://",
        "projections",
        "rebuild",
        "rebuild --verify",
        "rebuild-index",
        "rebase",
        "token new --role reader > reader.txt",
        "token new --role writer --expires 30d --name 'build server' > writer.txt",
        "token list",
        "token revoke 0",
        "completion bash > turnledger.bash",
    ),
    "exchange": (
        "export {triage} -O run.jsonl",
        "export {triage} -O run.jsonl -o json",
        "export {triage} --format openai-chat -O chat.json",
        "export {triage} --format otlp -O spans.json",
        "export {waiting} --format otlp > spans.json",
        "import run.jsonl --db copy.db",
        "import run.jsonl --check",
        "import chat.json --format openai-chat --db copy.db",
        "import note.json",
        "serve --host 0.0.0.0",
        "mcp --db nowhere.db",
    ),
}


class ScreenClock:
    """A clock that is moved by hand, and ids that look like the real ones."""

    def __init__(self) -> None:
        self.now = MORNING
        self._ids = 0

    def micros(self) -> int:
        return self.now

    def new_id(self) -> str:
        self._ids += 1
        rest = blake2b(f"{self._ids}".encode(), digest_size=10).hexdigest()
        return str(UUID(f"{self.now // 1000:012x}7{rest[:3]}8{rest[3:18]}"))


# --- the ledger ---------------------------------------------------------------------


def _said(clock: ScreenClock, role: Any, text: str, sequence: int, **more: Any) -> MessageAppended:
    own: dict[str, Any] = {
        "message_id": UUID(clock.new_id()),
        "created_at": to_datetime(clock.now),
    }
    return MessageAppended(message=InnerMessage(role, text, "triage-1", sequence, **own, **more))


def _ticket(clock: ScreenClock, text: str, tags: dict[str, str]) -> list[list[Event]]:
    """The commits of a run up to the model's first reply, which asks for two tools."""
    of: dict[str, Any] = {"evaluation_id": "triage-1"}
    asks = _said(
        clock,
        "assistant",
        "Let me look at the invoice.",
        2,
        turn=1,
        tool_calls=(
            ToolCallRecord("call_1", "find_invoice", '{"number": 4711, "customer": "acme"}'),
            ToolCallRecord("call_2", "credit", '{"euros": 120, "reason": "wrong invoice"}'),
        ),
    )
    usage = TokenUsage(input_tokens=1_180, output_tokens=64, cached_tokens=900)
    replied = ModelReplied(
        **of, turn=1, message_id=asks.message.message_id, model="gpt-5-mini", usage=usage
    )
    start = EvaluationStarted(
        **of, prompt_ns="support", prompt_key="triage", prompt_digest="8d1f0c2e"
    )
    return [
        [RunStarted(tags=tags)],
        [start, _said(clock, "system", "You triage tickets.", 0), _said(clock, "user", text, 1)],
        [ModelCalled(**of, turn=1, request_digest="-", model="gpt-5-mini"), asks, replied],
        [ToolCallStarted(**of, call_id="call_1", name="find_invoice")],
    ]


def _result(clock: ScreenClock, call: str, name: str, text: str, at: int) -> list[Event]:
    message = _said(clock, "tool", text, at, tool_call_id=call, tool_name=name)
    done = ToolCallCompleted(
        evaluation_id="triage-1",
        call_id=call,
        name=name,
        message_id=message.message.message_id,
    )
    return [message, done]


def _answer(clock: ScreenClock) -> list[Event]:
    said = _said(clock, "assistant", "The invoice was wrong. 120 EUR were credited.", 5, turn=2)
    usage = TokenUsage(input_tokens=1_420, output_tokens=38, cached_tokens=1_100)
    of: dict[str, Any] = {"evaluation_id": "triage-1", "turn": 2, "model": "gpt-5-mini"}
    replied = ModelReplied(**of, message_id=said.message.message_id, usage=usage)
    return [ModelCalled(**of, request_digest="-"), said, replied]


def _record(ledger: Ledger, clock: ScreenClock, commits: list[list[Event]]) -> str:
    """A run of these commits, some seconds apart."""
    run = clock.new_id()
    version = 0
    for commit in commits:
        version = ledger.append(run, commit, version or NEW).version
        clock.now += 1_700_000
    return run


def _order(ledger: Ledger, clock: ScreenClock) -> None:
    """A block of steps under a name, whose worker died in the last one: that is in doubt."""
    of: dict[str, Any] = {"evaluation_id": ""}
    inner = {**of, "parent": "settle#1", "digest": "-"}
    check, pay = "settle#1/check#1", "settle#1/pay:17"
    model: dict[str, Any] = {**of, "turn": 0, "call_id": "openai.chat.completions:3f9a"}
    usage = TokenUsage(input_tokens=310, output_tokens=12)
    order, euros = '{"order": 17}', '{"order": 17, "euros": 120}'
    started = RunStarted(request_type="turnledger.block", tags={"name": "order-17"})
    name = "openai.chat.completions"
    before: list[Event] = [
        ModelCalled(**model, name=name, request_digest="-", model="gpt-5-mini"),
        ModelReplied(**model, model="gpt-5-mini", usage=usage, value={"text": "Settle it."}),
        ToolCallStarted(**of, call_id="settle#1", name="settle", arguments=order, digest="-"),
        ToolCallStarted(**inner, call_id=check, name="check", arguments=order),
        ToolCallCompleted(**of, call_id=check, name="check", value={"euros": 120}),
        ToolCallStarted(**inner, call_id=pay, name="pay", arguments=euros, on_interrupt="ask"),
    ]
    after: list[Event] = [
        RunResumed(attempt=1, from_version=8),
        ToolCallInDoubt(**of, call_id=pay, name="pay", attempt=1),
        RunWaiting(reason="in doubt", call_ids=(pay,)),
    ]
    run = run_id_for("order-17")
    ledger.append(run, [started], NEW)
    for worker, events in (("worker-1", before), ("worker-2", after)):
        with ledger.claim(run, worker=worker) as claim:
            for event in events:
                clock.now += 400_000
                ledger.append(run, [event], ANY, claim.epoch)
        clock.now += 3_000_000


def tell_story(ledger: Ledger, clock: ScreenClock) -> dict[str, str]:
    """Record the runs that the screens show; their short ids by name."""
    text = "My invoice 4711 is wrong, please check it and credit the difference to our account."
    start, credit = ToolCallStarted, {"evaluation_id": "triage-1", "call_id": "call_2"}
    begins = start(**credit, name="credit")
    found = ("call_1", "find_invoice", "Invoice 4711: 240 EUR, should be 120 EUR.", 3)
    runs = {}
    clock.now = MORNING - 3 * 24 * 60 * MINUTE
    full = _said(clock, "tool", "the bank refused", 4, tool_call_id="call_2", tool_name="credit")
    refused = ToolCallFailed(
        **credit,
        name="credit",
        message_id=full.message.message_id,
        error_type="BankError",
        error_message="the bank refused",
    )
    failed = RunFailed(error_type="BankError", error_message="the bank refused")
    ticket = _ticket(clock, "My invoice 4711 is wrong.", {"customer": "globex"})
    runs["failed"] = _record(
        ledger, clock, [*ticket, _result(clock, *found), [begins], [full, refused], [failed]]
    )
    clock.now = MORNING - 150 * MINUTE
    runs["quiet"] = _record(ledger, clock, _ticket(clock, text, {"customer": "initech"}))
    clock.now = MORNING - 90 * MINUTE
    doubt = [
        ToolCallInDoubt(**credit, name="credit", attempt=1),
        RunWaiting(reason="in doubt", call_ids=("call_2",)),
    ]
    ticket = _ticket(clock, text, {"customer": "hooli"})
    runs["waiting"] = _record(ledger, clock, [*ticket, _result(clock, *found), [begins], doubt])
    clock.now = MORNING - 12 * MINUTE
    ticket = _ticket(clock, text, {"customer": "acme", "team": "billing"})
    credited = _result(clock, "call_2", "credit", "Credited 120 EUR.", 4)
    done: list[Event] = [RunCompleted(output={"priority": "high"})]
    runs["triage"] = _record(
        ledger,
        clock,
        [*ticket, _result(clock, *found), [begins], credited, _answer(clock), done],
    )
    override = PromptOverrideSet(
        prompt_ns="support",
        prompt_key="triage",
        path="tone",
        body="Be friendly, and say what happens next.",
        note="customers asked",
        set_by="ann",
    )
    ledger.append(prompt_stream_id("support", "triage"), override, NEW)
    import travel  # type: ignore[import-not-found]  # written by `stage`

    runs["booking"] = clock.new_id()
    travel.loop(ledger).execute(travel.Trip("Lisbon"), run_id=UUID(runs["booking"]))
    clock.now = MORNING - 40 * MINUTE
    _order(ledger, clock)
    clock.now = MORNING
    return {name: run[-8:] for name, run in runs.items()}


# --- the terminal -------------------------------------------------------------------


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


# Where lines break depends on the length of a path: the same on every machine.
FOLDERS = "/tmp"  # noqa: S108


@contextmanager
def stage(width: int) -> Iterator[tuple[ScreenClock, dict[str, str]]]:
    """A folder with the ledger and the agent, and a terminal of this width."""
    clock = ScreenClock()
    variables = {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb", "TURNLEDGER_DB": "runs.db"}
    with (
        TemporaryDirectory(dir=FOLDERS) as folder,
        chdir(folder),
        patch.dict(os.environ, variables),
        patch.object(sys, "path", [folder, *sys.path]),
        patch.object(sys, "dont_write_bytecode", True),
    ):
        sys.modules.pop("travel", None)
        Path("travel.py").write_text(AGENT)
        Path("note.json").write_text('{"type": "custom", "data": {"kind": "acme.note"}}')
        with Ledger.open("runs.db", clock=clock) as ledger:
            runs = tell_story(ledger, clock)
        yield clock, runs
        sys.modules.pop("travel", None)


def screen(line: str, clock: ScreenClock) -> str:
    """What a terminal shows of a command line, with its exit code if that is not 0."""
    words, _, file = line.partition(" > ")
    terminal = Terminal()
    stdout = terminal if not file else Path(file).open("w")  # noqa: SIM115
    typed = io.TextIOWrapper(io.BytesIO(TYPED.get(words, "").encode()))
    with redirect_stdout(stdout), redirect_stderr(terminal), patch.object(sys, "stdin", typed):
        try:
            turnledger.main(shlex.split(words), prog_name="turnledger", obj=clock)
            code: object = 0
        except SystemExit as done:
            code = done.code
        finally:
            stdout.flush()
    if file:
        stdout.close()
    shown = terminal.text().replace(str(Path.cwd()), "/agents")
    # The size of a copy depends on the version of SQLite.
    shown = re.sub(r"(?m)^(bytes +)\d+$", r"\g<1>86016", shown)
    return shown if not code else f"{shown}(exit code {code})\n"


@cache
def rendered(width: int) -> dict[str, str]:
    """The screens by section at a width, and the help of every command."""
    found = {}
    for section, lines in SCREENS.items():
        with stage(width) as (clock, runs):
            parts = []
            for line in lines:
                text = line.format(**runs)
                parts.append(f"$ turnledger {text}\n{screen(text, clock)}")
                clock.now += 1_000_000
            found[section] = "\n".join(parts)
    with stage(width) as (clock, _):
        names = ["", *(name for table in SECTIONS.values() for name in table)]
        names += [name for name in turnledger.load_all() if " " in name]
        lines = tuple(f"{name} --help".strip() for name in names)
        found["help"] = "\n".join(f"$ turnledger {one}\n{screen(one, clock)}" for one in lines)
    return found
