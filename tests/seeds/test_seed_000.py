"""Seed 000, inner messages: its code blocks as printed, but for import paths.

Where a block is a fragment, the test completes it: `config.session` and `inputs.prompt` of the
InnerLoop are attributes here, and a handler is a function. Blocks that this project rules out
(X1 to X4) run too, beside what it does instead.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar
from uuid import UUID, uuid4

import pytest

from tests.agent import Crash, calls, says
from tests.seeds.printed import FrozenDataclass, assert_callable_as, assert_same_fields
from tests.unit.runtime.evaluations import Dying, Scripted, Sum, prompt_of, tool
from turnledger.adapters.providers.openai.chat import ChatCompletions
from turnledger.ledger import InnerMessage, ToolCallRecord
from turnledger.projections import (
    ReducerContext,
    get_inner_messages,
    get_latest_evaluation_id,
    get_pending_tool_calls,
    inner_message_append,
)
from turnledger.runtime import (
    ConversationNotFound,
    InProcessEventBus,
    MainLoop,
    Prompt,
    PromptMismatch,
    PromptResponse,
    ProviderAdapter,
    Session,
    Snapshot,
    Tool,
    ToolContext,
    ToolResult,
    enable_inner_message_recording,
)
from turnledger.runtime.agent.tools import call_tool

OutputT = TypeVar("OutputT")
SCRIPT = [
    calls(("a", "add", '{"n": 1}'), ("b", "add", '{"n": 2}'), text="Adding."),
    says("3"),
]
# The table of "Sequence Numbering".
NUMBERED = [
    ("system", 0, 0),
    ("assistant", 1, 1),
    ("tool", 2, 1),
    ("tool", 3, 1),
    ("assistant", 4, 2),
]


# --- Core Data Model -------------------------------------------------------------------


class Printed:
    """The seed's own classes."""

    @FrozenDataclass()
    class ToolCallRecord:
        """Record of a tool call made by the assistant."""

        call_id: str
        name: str
        arguments: str  # JSON-encoded arguments
        status: Literal["pending", "completed", "failed"] = "pending"

    @FrozenDataclass()
    class InnerMessage:
        """A single message in a conversation, stored as a session slice item."""

        role: Literal["system", "assistant", "user", "tool"]
        content: str

        # Ordering fields
        evaluation_id: str
        sequence: int  # Global sequence within evaluation, starts at 0

        # Tool-related fields
        tool_calls: tuple[ToolCallRecord, ...] = ()
        tool_call_id: str | None = None  # For role="tool", references the call
        tool_name: str | None = None  # For role="tool"

        # Metadata
        turn: int = 0  # Provider round-trip number
        prompt_ns: str = ""
        prompt_key: str = ""
        created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
        message_id: UUID = field(default_factory=uuid4)

    class ProviderAdapter(ABC):
        @abstractmethod
        def evaluate(
            self,
            prompt: Prompt[OutputT],
            *,
            # ... existing parameters ...
            resume: bool = False,  # NEW: resume from session state
        ) -> PromptResponse[OutputT]: ...

    @FrozenDataclass()
    class ToolContext:
        # ... existing fields ...
        call_id: str  # Already present
        is_resume: bool = False  # NEW: indicates resumed execution


def test_the_data_model_is_as_printed() -> None:
    """S0-1, S0-2, S0-13, S0-19: fields in their order, with their defaults."""
    assert_callable_as(Printed.ProviderAdapter.evaluate, ProviderAdapter.evaluate)
    assert_same_fields(Printed.ToolCallRecord, ToolCallRecord)
    assert_same_fields(Printed.InnerMessage, InnerMessage)
    context = ToolContext(call_id="c1")
    assert (context.call_id, context.is_resume) == ("c1", False)


# --- Reducer ---------------------------------------------------------------------------


def printed_inner_message_append(
    slice_values: tuple[InnerMessage, ...],
    event: InnerMessage,
    *,
    context: ReducerContext,
) -> tuple[InnerMessage, ...]:
    # Deduplicate by message_id
    existing_ids = {msg.message_id for msg in slice_values}
    if event.message_id in existing_ids:
        return slice_values

    # Find insertion point maintaining order
    result = list(slice_values)
    insert_idx = len(result)

    for i, msg in enumerate(result):
        if msg.evaluation_id == event.evaluation_id:
            if msg.sequence > event.sequence:
                insert_idx = i
                break
        elif msg.evaluation_id > event.evaluation_id:
            # Different evaluation, maintain evaluation order
            insert_idx = i
            break

    result.insert(insert_idx, event)
    return tuple(result)


def test_the_reducer_does_what_the_printed_one_does() -> None:
    """S0-5: of one evaluation, in any order of arrival, and for a message that came twice."""
    assert_callable_as(printed_inner_message_append, inner_message_append)
    said = [InnerMessage("user", str(n), "e1", n) for n in range(4)]
    context = ReducerContext()
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 2, 0, 2], [1, 0, 1, 0]):
        printed: tuple[InnerMessage, ...] = ()
        ours: tuple[InnerMessage, ...] = ()
        for place in order:
            printed = printed_inner_message_append(printed, said[place], context=context)
            ours = inner_message_append(ours, said[place], context=context)
            assert ours == printed
    # X4: of several evaluations the order is the ledger's, not that of the ids' text.
    late = InnerMessage("user", "later", "a0", 0)
    assert inner_message_append((said[0],), late, context=context) == (said[0], late)


# --- Session Integration ---------------------------------------------------------------


class InnerLoop:
    """The printed methods. The rest is what they take for granted."""

    _sequence: int = 0
    _turn: int = 0

    def __init__(self, session: Session, prompt: Prompt[Any]) -> None:
        self.config = SimpleNamespace(session=session)
        self.inputs = SimpleNamespace(prompt=prompt)
        self._rendered = prompt.render()

    def _record_message(
        self,
        role: Literal["system", "assistant", "user", "tool"],
        content: str,
        *,
        tool_calls: tuple[ToolCallRecord, ...] = (),
        tool_call_id: str | None = None,
        tool_name: str | None = None,
    ) -> InnerMessage:
        """Record a message to the session and return it."""
        message = InnerMessage(
            role=role,
            content=content,
            evaluation_id=self._evaluation_id,
            sequence=self._sequence,
            turn=self._turn,
            tool_calls=tool_calls,
            tool_call_id=tool_call_id,
            tool_name=tool_name,
            prompt_ns=self.inputs.prompt.ns,
            prompt_key=self.inputs.prompt.key,
        )
        self._sequence += 1
        self.config.session.mutate(InnerMessage).append(message)
        return message

    def _prepare(self) -> None:
        self._evaluation_id = str(uuid4())
        self._sequence = 0
        self._turn = 0

        # Record system message immediately
        self._record_message(
            role="system",
            content=self._rendered.text,
        )

        # ... rest of preparation ...

    def _handle_assistant_response(self, message: Any) -> None:
        self._turn += 1

        tool_call_records = tuple(
            ToolCallRecord(
                call_id=tc.id,
                name=tc.function.name,
                arguments=tc.function.arguments,
                status="pending",
            )
            for tc in (message.tool_calls or [])
        )

        self._record_message(
            role="assistant",
            content=message.content or "",
            tool_calls=tool_call_records,
        )

    def _execute_tool_and_record(
        self,
        tool_call: Any,
    ) -> dict[str, Any]:
        """Execute a single tool and record result immediately."""

        result = self._invoke_handler(tool_call)

        # Record to session immediately after execution
        self._record_message(
            role="tool",
            content=self._serialize_result(result),
            tool_call_id=tool_call.id,
            tool_name=tool_call.function.name,
        )

        # Update tool call status in the assistant message
        self._mark_tool_completed(tool_call.id)

        return self._format_tool_message(tool_call.id, result)

    def _mark_tool_completed(self, call_id: str) -> None:
        """Update tool call status to completed in the assistant message."""
        messages = self.config.session.select_all(InnerMessage)

        for msg in reversed(messages):
            if msg.evaluation_id != self._evaluation_id:
                continue
            if msg.role != "assistant":
                continue

            for tc in msg.tool_calls:
                if tc.call_id == call_id:
                    # Create updated message with completed status
                    updated_calls = tuple(
                        replace(t, status="completed") if t.call_id == call_id else t
                        for t in msg.tool_calls
                    )
                    updated_msg = replace(msg, tool_calls=updated_calls)

                    # Replace in session using upsert
                    self.config.session.mutate(InnerMessage).dispatch(updated_msg)
                    return

    # What the seed leaves out.
    def _invoke_handler(self, tool_call: Any) -> str:
        return f"Result {tool_call.id}"

    def _serialize_result(self, result: str) -> str:
        return result

    def _format_tool_message(self, call_id: str, result: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": result}


def asked(call_id: str) -> SimpleNamespace:
    """A call as an SDK spells it."""
    return SimpleNamespace(id=call_id, function=SimpleNamespace(name="add", arguments="{}"))


def interrupted(session: Session) -> InnerLoop:
    """Two calls, of which one is answered: as if the process had died then."""
    loop = InnerLoop(session, prompt_of(tool()))
    loop._prepare()
    loop._handle_assistant_response(
        SimpleNamespace(content=None, tool_calls=[asked("c1"), asked("c2")])
    )
    loop._execute_tool_and_record(asked("c1"))
    return loop


def numbers(session: Session) -> list[tuple[str, int, int]]:
    return [(m.role, m.sequence, m.turn) for m in session.select_all(InnerMessage)]


def test_the_inner_loops_recording_runs() -> None:
    """S0-3, S0-4, S0-8: the numbers of the printed diagram, and the statuses."""
    session = Session()
    enable_inner_message_recording(session)
    loop = interrupted(session)
    statuses = [tc.status for tc in session.select_all(InnerMessage)[1].tool_calls]
    assert statuses == ["completed", "pending"]
    loop._execute_tool_and_record(asked("c2"))
    loop._handle_assistant_response(SimpleNamespace(content="Done.", tool_calls=None))
    assert numbers(session) == NUMBERED


# --- Snapshot Serialization --------------------------------------------------------------


def test_messages_serialize_as_individual_items() -> None:
    """S0-9: the printed shape."""
    session = Session()
    enable_inner_message_recording(session)
    interrupted(session)

    snapshot = session.snapshot()
    json_str = snapshot.to_json()

    (found,) = json.loads(json_str)["slices"]
    assert found["slice_type"] == found["item_type"]
    module, _, name = found["slice_type"].partition(":")
    assert (module.split(".")[0], name) == ("turnledger", "InnerMessage")
    assert [(item["role"], item["sequence"]) for item in found["items"]] == [
        ("system", 0),
        ("assistant", 1),
        ("tool", 2),
    ]
    assert found["items"][2]["tool_call_id"] == "c1"


def test_the_seeds_snapshot_is_read_whatever_module_it_names() -> None:
    """S0-9: types are spelled "module:Class" and only ever compared."""
    kind = "weakincentives.runtime.inner_messages:InnerMessage"
    item = {
        "role": "system",
        "sequence": 0,
        "content": "Be brief.",
        "evaluation_id": "e1",
        "created_at": datetime(2025, 1, 1, tzinfo=UTC).isoformat(),
        "message_id": str(UUID(int=5)),
    }
    text = json.dumps({"slices": [{"slice_type": kind, "item_type": kind, "items": [item]}]})
    session = Session()
    enable_inner_message_recording(session)
    session.mutate().rollback(Snapshot.from_json(text))
    (found,) = session.select_all(InnerMessage)
    assert (found.content, found.message_id) == ("Be brief.", UUID(int=5))


# --- Resume Flow -------------------------------------------------------------------------


def printed_get_inner_messages(
    session: Session,
    evaluation_id: str | None = None,
) -> tuple[InnerMessage, ...]:
    """Get conversation messages, optionally filtered by evaluation."""
    messages = session.select_all(InnerMessage)

    if evaluation_id is not None:
        messages = tuple(m for m in messages if m.evaluation_id == evaluation_id)

    return tuple(sorted(messages, key=lambda m: (m.evaluation_id, m.sequence)))


def printed_get_latest_evaluation_id(session: Session) -> str | None:
    """Get the evaluation_id of the most recent conversation."""
    messages = session.select_all(InnerMessage)
    if not messages:
        return None

    # Find latest by created_at of system message
    system_messages = [m for m in messages if m.role == "system"]
    if not system_messages:
        return None

    latest = max(system_messages, key=lambda m: m.created_at)
    return latest.evaluation_id


def printed_get_pending_tool_calls(
    session: Session,
    evaluation_id: str,
) -> tuple[ToolCallRecord, ...]:
    """Get tool calls that haven't completed."""
    messages = get_inner_messages(session, evaluation_id)

    # Find all tool_call_ids that have results
    completed_ids = {m.tool_call_id for m in messages if m.role == "tool" and m.tool_call_id}

    # Find pending from assistant messages
    pending: list[ToolCallRecord] = []
    for msg in messages:
        if msg.role == "assistant":
            for tc in msg.tool_calls:
                if tc.call_id not in completed_ids:
                    pending.append(tc)

    return tuple(pending)


def test_the_queries_give_what_the_printed_ones_give() -> None:
    """S0-10, S0-11, S0-12: of no, one and several evaluations."""
    session = Session()
    enable_inner_message_recording(session)
    for number in range(3):
        latest = get_latest_evaluation_id(session)
        assert latest == printed_get_latest_evaluation_id(session)
        for one in (None, latest, "unknown"):
            assert get_inner_messages(session, one) == printed_get_inner_messages(session, one)
            pending = get_pending_tool_calls(session, one or "")
            assert pending == printed_get_pending_tool_calls(session, one or "")
        assert [call.call_id for call in get_pending_tool_calls(session, latest or "")] == (
            ["c2"] if number else []
        )
        interrupted(session)


class ResumingAdapter(ProviderAdapter[Any]):
    """The printed `evaluate` and `_resume_evaluation`. How it goes on is our own adapter's."""

    def __init__(self, inner: ProviderAdapter[Any]) -> None:
        super().__init__()
        self.inner = inner
        self.went_on_from: list[str] = []

    def evaluate(  # type: ignore[override]
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        resume: bool = False,
        **kwargs: Any,
    ) -> PromptResponse[OutputT]:
        if resume:
            return self._resume_evaluation(prompt, session, **kwargs)
        return self._fresh_evaluation(prompt, session, **kwargs)

    def _resume_evaluation(
        self,
        prompt: Prompt[OutputT],
        session: Session,
        **kwargs: Any,
    ) -> PromptResponse[OutputT]:
        evaluation_id = get_latest_evaluation_id(session)
        if evaluation_id is None:
            raise ValueError("No conversation to resume")

        messages = get_inner_messages(session, evaluation_id)
        pending = get_pending_tool_calls(session, evaluation_id)

        # Validate prompt identity
        system_msg = next((m for m in messages if m.role == "system"), None)
        if system_msg and (prompt.ns, prompt.key) != (system_msg.prompt_ns, system_msg.prompt_key):
            raise ValueError("Cannot resume with mismatched prompt")

        # Reconstruct provider message list
        provider_messages = self._messages_to_provider_format(messages)

        # Determine resume point
        if pending:
            # Resume mid-turn: re-execute pending tools
            return self._resume_from_pending_tools(
                prompt, session, provider_messages, pending, evaluation_id, **kwargs
            )
        else:  # noqa: RET505 - as printed
            # Resume after complete turn: continue conversation
            return self._resume_from_complete_turn(
                prompt, session, provider_messages, evaluation_id, **kwargs
            )

    def _messages_to_provider_format(
        self,
        messages: tuple[InnerMessage, ...],
    ) -> list[dict[str, Any]]:
        """Convert InnerMessage items to provider format."""
        result: list[dict[str, Any]] = []

        for msg in messages:
            if msg.role == "system":
                result.append({"role": "system", "content": msg.content})

            elif msg.role == "assistant":
                assistant_msg: dict[str, Any] = {
                    "role": "assistant",
                    "content": msg.content,
                }
                if msg.tool_calls:
                    assistant_msg["tool_calls"] = [
                        {
                            "id": tc.call_id,
                            "type": "function",
                            "function": {
                                "name": tc.name,
                                "arguments": tc.arguments,
                            },
                        }
                        for tc in msg.tool_calls
                        if tc.status == "completed"  # Only include completed
                    ]
                result.append(assistant_msg)

            elif msg.role == "tool":
                result.append({
                    "role": "tool",
                    "tool_call_id": msg.tool_call_id,
                    "content": msg.content,
                })  # fmt: skip

            elif msg.role == "user":
                result.append({"role": "user", "content": msg.content})

        return result

    # The printed rest resets ids and never feeds results back (X3): our loop goes on instead.
    def _fresh_evaluation(self, prompt: Any, session: Session, **kwargs: Any) -> Any:
        return self.inner.evaluate(prompt, session=session, **kwargs)

    def _resume_from_pending_tools(self, prompt: Any, session: Session, *known: Any) -> Any:
        self.went_on_from.append("pending tools")
        return self.inner.evaluate(prompt, session=session, resume=True)

    def _resume_from_complete_turn(self, prompt: Any, session: Session, *known: Any) -> Any:
        self.went_on_from.append("a complete turn")
        return self.inner.evaluate(prompt, session=session, resume=True)


def test_the_printed_resume_runs_over_our_adapter() -> None:
    """S0-13, S0-14, S0-16, S0-17: with pending calls and with none; else a ValueError."""
    session = Session()
    enable_inner_message_recording(session)
    handler = Dying("b")
    adapter, prompt = ResumingAdapter(Scripted(SCRIPT)), prompt_of(tool(handler))
    for one in (adapter, adapter.inner):
        with pytest.raises(ValueError, match=r"[Nn]o conversation"):
            one.evaluate(prompt, session=session, resume=True)
    with pytest.raises(Crash):
        adapter.evaluate(prompt, session=session)
    for one in (adapter, adapter.inner):
        with pytest.raises(ValueError, match=r"prompt|tests/other"):
            one.evaluate(prompt_of(key="other"), session=session, resume=True)
    assert issubclass(ConversationNotFound, ValueError)
    assert issubclass(PromptMismatch, ValueError)
    handler.dies_in = set()
    for _ in range(2):
        assert adapter.evaluate(prompt, session=session, resume=True).text == "3"
    assert adapter.went_on_from == ["pending tools", "a complete turn"]
    assert handler.ran == [("a", False), ("b", False), ("b", True)]
    assert numbers(session) == NUMBERED


def test_the_printed_message_list_is_what_is_sent() -> None:
    """S0-15, X2: of a conversation whose calls are all answered, to the chat completions API."""
    session = Session()
    enable_inner_message_recording(session)
    model = Scripted(SCRIPT)
    model.evaluate(prompt_of(tool()), session=session)
    printed = ResumingAdapter(model)._messages_to_provider_format(
        get_inner_messages(session, get_latest_evaluation_id(session))
    )
    sent = ChatCompletions().encode(model.requests[-1])
    assert sent["messages"] == printed[:-1]  # the last is the answer to it


# --- MainLoop Integration ----------------------------------------------------------------


class RecordingLoop(MainLoop[str, Any]):
    def execute(self, request: str) -> PromptResponse[Any]:  # type: ignore[override]
        session = self.create_session()

        # Enable message recording
        session.mutate(InnerMessage).register(
            InnerMessage,
            inner_message_append,
        )

        self.session = session  # only to look at it afterwards
        return self._adapter.evaluate(
            self.create_prompt(request),
            session=session,
        )

    def create_prompt(self, request: str) -> Prompt[Any]:
        return prompt_of(tool(), text=request)

    def create_session(self) -> Session:
        return Session(bus=self._bus)


def test_the_printed_execute_records_messages_and_so_does_ours() -> None:
    """S0-18: MainLoop registers the reducer."""
    loop = RecordingLoop(adapter=Scripted(SCRIPT), bus=InProcessEventBus())
    assert loop.execute("Add.").text == "3"
    response, session = MainLoop.execute(loop, "Add.")
    assert response.text == "3"
    assert numbers(session) == numbers(loop.session) == NUMBERED


# --- Tool Idempotency --------------------------------------------------------------------


@dataclass(frozen=True)
class WriteFileParams:
    path: str


@dataclass(frozen=True)
class WriteFileResult:
    size: int


executed: dict[str, ToolResult[WriteFileResult]] = {}
was_already_executed: Callable[[str], bool] = executed.__contains__
cached_result: Callable[[str], ToolResult[WriteFileResult]] = executed.__getitem__


def write_file_handler(
    params: WriteFileParams,
    *,
    context: ToolContext,
) -> ToolResult[WriteFileResult]:
    call_id = context.call_id
    if was_already_executed(call_id):
        return cached_result(call_id)
    # ... execute and cache ...
    executed[call_id] = ToolResult("Written.", value=WriteFileResult(size=len(params.path)))
    return executed[call_id]


def test_the_idempotency_key_example_runs() -> None:
    """S0-19: a call that runs again has its old id."""
    executed.clear()
    writing = Tool[WriteFileParams, WriteFileResult](
        name="write_file", description="Writes it.", handler=write_file_handler
    )
    first = call_tool(writing, '{"path": "abc"}', ToolContext(call_id="c1"))
    again = call_tool(writing, '{"path": "other"}', ToolContext(call_id="c1", is_resume=True))
    assert first.text == again.text == 'Written.\n\n{"size":3}'


# --- Usage Example -----------------------------------------------------------------------


def test_basic_resume_and_resume_from_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S0-6, S0-16, S0-21, S0-22: crash after tool A: its result stands, only B runs."""
    handler = Dying("b")
    adapter, prompt = Scripted(SCRIPT), prompt_of(tool(handler))
    checkpoint = tmp_path / "checkpoint.json"

    # Setup session with recording
    session = Session(bus=InProcessEventBus())
    session.mutate(InnerMessage).register(
        InnerMessage,
        inner_message_append,
    )
    session.install(Sum)  # the slice of the tool here

    # Save checkpoint after each message
    def save_on_change(old: Any, new: Any) -> None:
        if len(new) > len(old):
            checkpoint.write_text(session.snapshot().to_json())

    session.observe(InnerMessage, save_on_change)

    # Run evaluation
    with pytest.raises(Crash):
        response = adapter.evaluate(prompt, session=session)
    handler.dies_in = set()

    # Load checkpoint
    snapshot = Snapshot.from_json(checkpoint.read_text())

    session = Session(bus=InProcessEventBus())
    session.mutate(InnerMessage).register(
        InnerMessage,
        inner_message_append,
    )
    session.install(Sum)
    session.mutate().rollback(snapshot)

    # Resume - will detect pending tools and continue
    response = adapter.evaluate(prompt, session=session, resume=True)
    assert response.text == "3"
    assert handler.ran == [("a", False), ("b", False), ("b", True)]
    assert session[Sum].all() == (Sum(1), Sum(2))

    # Get all messages
    messages = session.select_all(InnerMessage)
    assert len(messages) == 5

    # Get messages for specific evaluation
    eval_id = get_latest_evaluation_id(session)
    conversation = get_inner_messages(session, eval_id)

    for msg in conversation:
        print(f"[{msg.sequence}] {msg.role}: {msg.content[:50]}...")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert lines == [
        "[0] system: ## Task",
        "[1] assistant: Adding....",
        "[2] tool: Added 1.",
        "[3] tool: Added 2.",
        "[4] assistant: 3...",
    ]


def test_both_ways_of_enabling_the_recording() -> None:
    """S0-6, S0-23: opt-in, and harmless twice."""
    session = Session()
    interrupted(session)
    assert session.select_all(InnerMessage) == ()

    # Option 1: Manual registration
    session.mutate(InnerMessage).register(
        InnerMessage,
        inner_message_append,
    )

    # Option 2: Convenience function
    enable_inner_message_recording(session)
    assert len(session.select_all(InnerMessage)) == 3
