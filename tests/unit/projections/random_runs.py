"""Random sequences of events: any at all, and ones of a small world in which ids meet."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.unit.ledger.strategies import events
from tests.unit.projections.given import PARENT, START, ident
from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    CheckpointCleared,
    CheckpointReached,
    CustomEvent,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    OutputRejected,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    SliceEventApplied,
    StateRestored,
    TokenUsage,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.projections import (
    Declarations,
    inner_message_append,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)
from turnledger.projections.projection import as_json

evaluations = st.sampled_from(["e1", "e2", ""])
calls = st.sampled_from(["c1", "c2", "c3"])
idents = st.integers(0, 9).map(ident)
turns = st.integers(0, 3)
texts = st.sampled_from(["", "a", "b"])


class Step(msgspec.Struct, frozen=True):
    name: str = ""
    done: bool = False


class Added(msgspec.Struct, frozen=True):
    by: int = 1


class Total(msgspec.Struct, frozen=True):
    value: int = 0

    @reducer(on=Added)
    def add(self, event: Added) -> Total:
        return Total(self.value + event.by)


class Note(msgspec.Struct, frozen=True):
    text: str = ""


class Digest(msgspec.Struct, frozen=True):
    text: str = ""


def declarations() -> Declarations:
    """A program that declares one slice for each kind of reducer."""
    declared = Declarations()
    declared.register(InnerMessage, InnerMessage, inner_message_append)
    declared.register(Step, Step, upsert_by(lambda step: step.name))
    declared.register(Note, Note, replace_latest_by(lambda note: note.text))
    declared.register(Digest, Digest, replace_latest)
    declared.register_class(Total)
    return declared


def _message(role: Any, fields: dict[str, Any]) -> MessageAppended:
    return MessageAppended(message=InnerMessage(role, created_at=START, **fields))


tool_calls = st.lists(
    st.builds(ToolCallRecord, calls, st.just("search"), st.just("{}")), max_size=3
).map(tuple)
messages = st.builds(
    _message,
    st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool"]),
    st.fixed_dictionaries(
        {
            "content": texts,
            "evaluation_id": evaluations,
            "sequence": st.integers(0, 9),
            "message_id": idents,
            "turn": turns,
        },
        optional={
            "tool_calls": tool_calls,
            "tool_call_id": calls,
            "is_error": st.booleans(),
        },
    ),
)
payloads = st.fixed_dictionaries(
    {}, optional={"name": texts, "text": texts, "by": st.integers(0, 3)}
)
slice_names = st.sampled_from(["Step", "Note", "Digest", "Total", "Undeclared"])
slice_events = st.builds(
    SliceEventApplied,
    slice=slice_names,
    event_type=st.sampled_from(["Step", "Note", "Digest", "Added", "Undeclared"]),
    operation=st.sampled_from(["apply", "apply", "apply", "append", "seed", "clear"]),
    payload=st.one_of(payloads, st.lists(payloads, max_size=2), st.none()),
)
snapshots = st.fixed_dictionaries(
    {
        "slices": st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {
                        "slice_type": slice_names.map("app:{}".format),
                        "items": st.lists(payloads, max_size=2),
                    }
                ),
                st.fixed_dictionaries(
                    {
                        "slice_type": st.just("turnledger.ledger.events.messages:InnerMessage"),
                        "items": st.lists(messages.map(lambda m: as_json(m.message)), max_size=3),
                    }
                ),
            ),
            max_size=3,
        )
    }
)
of_call = {"evaluation_id": evaluations, "call_id": calls, "name": st.just("search")}
of_model = {"evaluation_id": evaluations, "turn": turns}
# Durable steps: no evaluation, and an inner one is in a step or in a tool call.
of_step = {
    "evaluation_id": st.just(""),
    "call_id": st.sampled_from(["s#1", "s#2", "s#1/t:k", "c1/s#1"]),
}
of_model_step = {**of_step, "turn": st.just(0)}
begun = {"parent": st.sampled_from(["", "s#1", "c1"]), "attempt": st.integers(1, 2)}
steps: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        ToolCallStarted,
        **of_step,
        **begun,
        name=st.just("s"),
        digest=texts,
        arguments=st.sampled_from(["", '{"a":1}']),
    ),
    st.builds(ToolCallCompleted, **of_step, name=st.just("s"), value=texts, unrecordable=texts),
    st.builds(ToolCallFailed, **of_step, name=st.just("s"), error_type=texts, error_message=texts),
    st.builds(ToolCallInDoubt, **of_step, name=st.just("s")),
    st.builds(
        ToolCallDecided,
        call_id=of_step["call_id"],
        decision=st.sampled_from(["completed", "failed", "retry"]),
        attempt=st.integers(0, 2),
    ),
    st.builds(
        ModelCalled,
        **of_model_step,
        **begun,
        request_digest=st.just("r"),
        request=texts,
        model=texts,
        name=texts,
    ),
    st.builds(ModelReplied, **of_model_step, value=texts, model=texts),
    st.builds(
        ModelCallFailed,
        **of_model_step,
        error_type=texts,
        error_message=texts,
        retryable=st.booleans(),
        final=st.booleans(),
        value=texts,
    ),
)
# What a ledger takes after a run's first event, with ids that meet again and again.
small_world: st.SearchStrategy[Event] = st.one_of(
    messages,
    messages,
    steps,
    steps,
    st.builds(
        EvaluationStarted,
        evaluation_id=evaluations,
        prompt_ns=st.just("ns"),
        prompt_key=texts,
        prompt_digest=st.just("d"),
        after=st.just("") | evaluations,
        accepted=st.booleans(),
    ),
    st.builds(OutputRejected, evaluation_id=evaluations, asked_id=idents, error=texts),
    st.builds(EvaluationSuperseded, evaluation_id=evaluations),
    st.builds(EvaluationFinished, evaluation_id=evaluations, output=texts),
    st.builds(ToolMessageAmended, message_id=idents, content=texts),
    st.builds(ToolCallStarted, **of_call, attempt=st.integers(1, 3)),
    st.builds(ToolCallCompleted, **of_call, message_id=idents, value=texts),
    st.builds(
        ToolCallFailed,
        **of_call,
        message_id=idents,
        error_type=st.just("E"),
        error_message=texts,
    ),
    st.builds(ToolCallInDoubt, **of_call),
    st.builds(
        ToolCallDecided, call_id=calls, decision=st.sampled_from(["completed", "failed", "retry"])
    ),
    st.builds(ApprovalRequested, **of_call, needed=st.booleans()),
    st.builds(
        ApprovalDecided,
        call_id=calls,
        decision=st.sampled_from(["approved", "denied", "edited"]),
        attempt=st.integers(0, 1),
        arguments=st.sampled_from(["", "{}"]),
    ),
    st.builds(ModelCalled, **of_model, request_digest=st.just("r"), model=texts),
    st.builds(
        ModelReplied,
        **of_model,
        message_id=idents,
        model=texts,
        usage=st.builds(TokenUsage, input_tokens=st.integers(0, 5), output_tokens=turns),
    ),
    st.builds(ModelCallFailed, **of_model, error_type=st.just("E"), error_message=texts),
    slice_events,
    slice_events,
    st.builds(StateRestored, snapshot=snapshots),
    st.builds(
        CheckpointReached,
        phase=st.sampled_from(["initialized", "post_tool"]),
        tool_calls_completed=turns,
        state_digest=texts,
        created_at=st.just(START),
    ),
    st.builds(CheckpointCleared),
    st.builds(RunResumed, attempt=turns, from_version=turns),
    st.builds(RunWaiting, reason=texts, call_ids=st.lists(calls, max_size=2).map(tuple)),
    st.builds(RunFailed, error_type=st.just("E"), error_message=texts),
    st.builds(RunCompleted, output=texts),
    st.builds(RunParked, reason=texts),
    st.builds(CustomEvent, kind=st.just("test.note"), data=texts),
)
beginnings: st.SearchStrategy[Event] = st.sampled_from(
    [
        RunStarted(),
        RunStarted(parent=PARENT, at=1, kind="fork"),
        RunStarted(parent=PARENT, at=1, kind="continuation"),
        RunStarted(parent=PARENT, at=1, kind="turn"),
    ]
)
# Events as folds may meet them: forks, continuations and turns anywhere, and anything at all.
runs: st.SearchStrategy[list[Event]] = st.one_of(
    st.lists(small_world, min_size=12, max_size=40),
    st.lists(small_world | beginnings, max_size=40),
    st.lists(st.one_of(events(), small_world), max_size=15),
)
