"""Spans of a run: what they are called, where they stand, what they tell and what they keep."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from tests.unit.adapters.telemetry.telling import (
    TickingClock,
    conversation,
    done,
    spans_by_name,
    step,
    tell,
)
from turnledger.adapters.telemetry.conventions import provider_of
from turnledger.adapters.telemetry.open_span import run_context
from turnledger.ledger import (
    CustomEvent,
    Ledger,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    TokenUsage,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    new_run_id,
)
from turnledger.telemetry import export_spans, otlp_json


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory, whose commits are a second apart."""
    with Ledger.open("memory://", clock=TickingClock()) as opened:
        yield opened


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def events(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


def test_a_run_is_told_in_the_words_of_the_conventions(ledger: Ledger) -> None:
    """Agent, chat and tool, with models, tokens and finish reasons, by kind and place."""
    run = tell(ledger, *conversation())
    spans = export_spans(ledger, run)
    assert [(span.name, span.kind) for span in spans] == [
        ("chat gpt-5", SpanKind.CLIENT),
        ("execute_tool pay", SpanKind.INTERNAL),
        ("chat gpt-5", SpanKind.CLIENT),
        ("invoke_agent shop/pay", SpanKind.INTERNAL),
    ]
    chat, tool, _, whole = spans
    assert {parent(span) for span in spans[:3]} == {whole.context.span_id}
    assert [span.end_time - span.start_time for span in spans] == [10**9, 10**9, 10**9, 5 * 10**9]
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.model": "gpt-5-2026",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.conversation.id": str(run),
    }
    assert expected.items() <= attributes(chat).items()
    expected = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.id": "c1",
    }
    assert expected.items() <= attributes(tool).items()
    expected = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "shop/pay",
        "gen_ai.provider.name": "openai",
        "gen_ai.prompt.name": "shop/pay",
        "gen_ai.usage.input_tokens": 20,
        "turnledger.tag.customer": "acme",
        "turnledger.run.status": "completed",
    }
    assert expected.items() <= attributes(whole).items()
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}


def test_contents_leave_on_demand_only(ledger: Ledger) -> None:
    """Neither messages nor arguments, results, requests, outputs and notes, unless asked for."""
    note = CustomEvent(kind="acme.note", data={"private": "seven"})
    run = tell(ledger, *conversation()[:-1], [note], conversation()[-1])
    texts = ("You pay.", "Pay invoice", "I pay.", "euros", "Paid 5.", "is paid", "seven", "invoice")
    for content in (False, True):
        spans = export_spans(ledger, run, content=content)
        shown = json.dumps([span.to_json() for span in spans])
        assert [text in shown for text in texts] == [content] * len(texts)


def test_contents_have_the_shape_of_the_conventions(ledger: Ledger) -> None:
    """System text, messages with their parts, and a reply that stands after its event."""
    run = tell(ledger, *conversation())
    first, tool, second, _ = (attributes(s) for s in export_spans(ledger, run, content=True))

    def read(name: str, found: dict[str, Any]) -> Any:
        return json.loads(found[name])

    assert read("gen_ai.system_instructions", first) == [{"type": "text", "content": "You pay."}]
    asked = {"role": "user", "parts": [{"type": "text", "content": "Pay invoice 7."}]}
    assert read("gen_ai.input.messages", first) == [asked]
    call = {"type": "tool_call", "id": "c1", "name": "pay", "arguments": {"euros": 5}}
    parts = [{"type": "text", "content": "I pay."}, call]
    reply = {"role": "assistant", "parts": parts}
    assert read("gen_ai.output.messages", first) == [{**reply, "finish_reason": "tool_calls"}]
    result = {"type": "tool_call_response", "id": "c1", "response": "Paid 5."}
    told = [asked, reply, {"role": "tool", "parts": [result]}]
    assert read("gen_ai.input.messages", second) == told
    assert tool["gen_ai.tool.call.arguments"] == '{"euros": 5}'
    assert tool["gen_ai.tool.call.result"] == "Paid 5."


@pytest.mark.parametrize(
    ("data", "sent"), [(2**63 - 1, 2**63 - 1), (2**63, str(2**63)), ({"a": [1]}, '{"a":[1]}')]
)
def test_a_note_of_any_json_can_be_encoded(ledger: Ledger, data: Any, sent: Any) -> None:
    """As a number if OTLP has room for it, else as JSON text; nothing is dropped."""
    note = CustomEvent(kind="acme.note", data=data)
    run = tell(ledger, [RunStarted()], [note], [RunCompleted()])
    (whole,) = export_spans(ledger, run, content=True)
    (event,) = whole.events
    assert (event.attributes or {})["turnledger.data"] == sent
    (encoded,) = otlp_json([whole])["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["events"]
    assert len(encoded["attributes"]) == len(event.attributes or {})


def test_steps_are_inside_the_step_that_they_belong_to(ledger: Ledger) -> None:
    """By the parent's call id, however deep; models' calls too."""
    asked = ModelCalled(
        evaluation_id="",
        turn=0,
        request_digest="-",
        model="claude",
        call_id="outer#1/ask:d1",
        parent="outer#1",
        name="anthropic.messages",
        client="anthropic 2.9",
    )
    replied = ModelReplied(evaluation_id="", turn=0, call_id="outer#1/ask:d1", value={"a": 1})
    run = tell(
        ledger,
        [RunStarted(request_type="turnledger.workflow", agent="orders/pay")],
        [step("outer#1")],
        [asked],
        [replied],
        [step("outer#1/inner#1", parent="outer#1", arguments='{"x": 1}')],
        [done("outer#1/inner#1", {"y": 2})],
        [done("outer#1", unrecordable="a socket can't be recorded")],
        [RunCompleted()],
    )
    spans = spans_by_name(ledger, run, content=True)
    whole, outer = spans["invoke_workflow orders/pay"], spans["execute_tool outer"]
    inner, chat = spans["execute_tool inner"], spans["chat claude"]
    assert parent(outer) == whole.context.span_id
    assert parent(inner) == parent(chat) == outer.context.span_id
    assert attributes(whole)["gen_ai.workflow.name"] == "orders/pay"
    assert attributes(chat)["gen_ai.provider.name"] == "anthropic"
    assert attributes(inner)["gen_ai.tool.call.arguments"] == '{"x": 1}'
    assert attributes(inner)["gen_ai.tool.call.result"] == '{"y":2}'
    assert attributes(outer)["turnledger.unrecordable"] == "a socket can't be recorded"


def test_failed_attempts_of_a_wrapped_call_are_events_and_the_final_one_its_outcome(
    ledger: Ledger,
) -> None:
    """One span for the call: its caller got one outcome."""
    of: dict[str, Any] = {"evaluation_id": "", "turn": 0, "call_id": "ask:d1"}
    busy = ModelCallFailed(**of, error_type="RateLimit", error_message="later", status=429)
    gone = ModelCallFailed(**of, error_type="Gone", error_message="no", status=410, final=True)
    asked = ModelCalled(**of, request_digest="-", model="gpt", name="openai.embeddings")
    run = tell(ledger, [RunStarted()], [asked], [busy], [busy], [gone], [RunCompleted()])
    (call, _) = export_spans(ledger, run)
    assert call.name == "embeddings gpt"
    assert events(call) == ["model.call_failed", "model.call_failed"]
    assert (call.status.status_code, call.status.description) == (StatusCode.ERROR, "no")
    assert attributes(call)["error.type"] == "Gone"
    assert attributes(call)["http.response.status_code"] == 410


def test_a_call_in_doubt_ends_where_that_was_found_out(ledger: Ledger) -> None:
    """Each attempt is a span; the decision is an event, and its result takes no time."""
    doubt = ToolCallInDoubt(evaluation_id="", call_id="pay#1", name="pay", reason="killed")
    decided = ToolCallDecided(call_id="pay#1", decision="completed", decided_by="ann")
    run = tell(
        ledger,
        [RunStarted()],
        [step("pay#1")],
        [RunResumed(attempt=1, from_version=2), doubt],
        [decided],
        [done("pay#1")],
        [RunCompleted()],
    )
    lost, known, whole = export_spans(ledger, run)
    assert attributes(lost)["error.type"] == "in_doubt"
    assert events(lost) == ["tool_call.in_doubt"]
    assert (known.start_time, known.status.status_code) == (known.end_time, StatusCode.UNSET)
    assert events(whole) == ["run.resumed", "tool_call.decided"]
    assert (whole.events[1].attributes or {})["turnledger.decided_by"] == "ann"


def test_a_model_call_that_a_crash_cut_ends_with_the_resume(ledger: Ledger) -> None:
    """The next attempt is a span of its own."""
    of: dict[str, Any] = {"evaluation_id": "first", "turn": 1}
    called = ModelCalled(**of, request_digest="-", model="gpt")
    again = ModelCalled(**of, request_digest="-", model="gpt", attempt=2)
    reply = ModelReplied(**of, usage=TokenUsage(input_tokens=1, estimated=True))
    resumed = RunResumed(attempt=1, from_version=2)
    run = tell(ledger, [RunStarted()], [called], [resumed], [again], [reply], [RunCompleted()])
    cut, whole_call, whole = export_spans(ledger, run)
    assert attributes(cut)["error.type"] == "in_doubt"
    assert attributes(whole_call)["turnledger.attempt"] == 2
    assert attributes(whole_call)["turnledger.usage.estimated"] is True
    assert cut.end_time == whole.events[0].timestamp


def test_a_failed_run_is_an_error_and_goes_on_in_another_span(ledger: Ledger) -> None:
    """What was exported stays: the span after a recovery is linked to the one that failed."""
    failed = RunFailed(error_type="Outage", error_message="no network")
    run = tell(ledger, [RunStarted()], [step("pay#1")], [failed])
    before = [span.to_json() for span in export_spans(ledger, run)]
    with ledger.claim(run, worker="two"):
        pass
    tell(
        ledger,
        [RunResumed(attempt=1, from_version=4)],
        [done("pay#1")],
        [RunCompleted()],
        run=run,
    )
    spans = export_spans(ledger, run)
    assert [span.to_json() for span in spans[: len(before)]] == before
    lost, first, result, second = spans
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "no network")
    assert attributes(first)["error.type"] == "Outage"
    assert attributes(lost)["error.type"] == "in_doubt"
    (link,) = second.links
    assert link.context.span_id == first.context.span_id
    assert dict(link.attributes or {}) == {"turnledger.link": "resumed"}
    assert events(second) == ["run.claimed", "run.resumed"]
    assert parent(result) == second.context.span_id
    assert second.status.status_code is StatusCode.UNSET


def test_what_comes_after_the_end_takes_no_time(ledger: Ledger) -> None:
    """A note, a parking: spans of their own inside that of the run, which was exported before."""
    failed = RunFailed(error_type="Outage", error_message="no network")
    note = CustomEvent(kind="acme.note")
    run = tell(ledger, [RunStarted()], [failed], [RunParked(reason="too often")], [note])
    whole, parked, noted = export_spans(ledger, run)
    assert [parked.name, noted.name] == ["run.parked", "custom"]
    assert parent(parked) == parent(noted) == whole.context.span_id
    assert parked.start_time == parked.end_time
    assert parked.status.status_code is StatusCode.ERROR


def test_a_run_without_a_start_has_spans_too(ledger: Ledger) -> None:
    """Notes of a mirror, and a call among them: nothing stands above a note."""
    run = tell(ledger, [CustomEvent(kind="acme.note")], [step("pay#1")], [done("pay#1")])
    note, call = export_spans(ledger, run)
    assert (note.name, note.parent) == ("custom", None)
    assert call.parent == run_context(run, 2)


def test_open_spans_are_left_out(ledger: Ledger) -> None:
    """A later export adds to what there was."""
    run = tell(ledger, *conversation()[:3])
    assert [span.name for span in export_spans(ledger, run)] == ["chat gpt-5"]
    tell(ledger, *conversation()[3:4], run=run)
    assert [s.name for s in export_spans(ledger, run)] == ["chat gpt-5", "execute_tool pay"]


def test_two_runs_share_no_id(ledger: Ledger) -> None:
    """Though they did the same, at the same versions."""
    one, two = (export_spans(ledger, tell(ledger, *conversation())) for _ in range(2))
    assert not {s.context.span_id for s in one} & {s.context.span_id for s in two}
    assert not {s.context.trace_id for s in one} & {s.context.trace_id for s in two}


def test_a_fork_and_a_chat_turn_are_linked_to_their_parent(ledger: Ledger) -> None:
    """They have traces of their own, without what they share; contents know what was said."""
    first = tell(ledger, *conversation())
    turn = RunStarted(parent=first, at=ledger.head(first), kind="turn", agent="shop/pay")
    called = ModelCalled(evaluation_id="first", turn=3, request_digest="-", model="gpt")
    replied = ModelReplied(evaluation_id="first", turn=3)
    second = tell(ledger, [turn], [called], [replied], [RunCompleted()])
    fork = ledger.fork(second, ledger.head(second))
    ledger.append(fork, RunCompleted(), ledger.head(fork))
    start = ledger.run(second).parent_version + 1
    for run, origin, kind in (
        (second, run_context(first, 1), "turn"),
        (fork, run_context(second, start), "fork"),
    ):
        *_, whole = export_spans(ledger, run)
        (link,) = whole.links
        assert link.context == origin
        assert (link.attributes or {})["turnledger.link"] == kind
        assert whole.context.trace_id == run.int
    chat, whole = export_spans(ledger, second, content=True)
    assert "Pay invoice 7." in attributes(chat)["gen_ai.input.messages"]
    assert whole.context == run_context(second, start)


def test_a_refused_call_is_a_failed_one_that_takes_no_time(ledger: Ledger) -> None:
    """Its arguments were invalid: it has an end and no start."""
    refused = ToolCallFailed(
        evaluation_id="first", call_id="c9", name="pay", error_type="Invalid", error_message="no"
    )
    run = tell(ledger, [RunStarted()], [refused], [RunCompleted()])
    tool, _ = export_spans(ledger, run)
    assert (tool.name, tool.start_time) == ("execute_tool pay", tool.end_time)
    assert attributes(tool)["error.type"] == "Invalid"


@pytest.mark.parametrize(
    ("call", "provider"),
    [
        ({"adapter": "openai", "model": "gpt-5"}, "openai"),
        ({"adapter": "gemini", "model": "gemini-3"}, "gcp.gemini"),
        ({"adapter": "litellm", "model": "bedrock/claude"}, "aws.bedrock"),
        ({"adapter": "litellm", "model": "gpt-5"}, "litellm"),
        ({"name": "openai.chat.completions", "client": "openai 3.51"}, "openai"),
        ({"name": "agents", "client": "anthropic 2.9"}, "anthropic"),
        ({"adapter": "scripted"}, "scripted"),
        ({}, "_OTHER"),
    ],
)
def test_providers_have_well_known_names(call: dict[str, str], provider: str) -> None:
    """From the model's prefix, the adapter, the kind of request or the client."""
    given: dict[str, Any] = call
    asked = ModelCalled(evaluation_id="", turn=0, request_digest="-", **given)
    assert provider_of(asked) == provider


def test_the_resource_is_the_users(ledger: Ledger) -> None:
    """A service of the user's name instead of ours."""
    run = tell(ledger, [RunStarted()], [RunCompleted()])
    (ours,) = export_spans(ledger, run)
    assert dict(ours.resource.attributes) == {"service.name": "turnledger"}
    (theirs,) = export_spans(ledger, str(run), resource=Resource({"service.name": "shop"}))
    assert dict(theirs.resource.attributes) == {"service.name": "shop"}


def test_an_id_of_zeros_is_never_a_trace() -> None:
    """Collectors refuse it, and a run may be called so."""
    assert run_context(new_run_id(), 1).is_valid
    assert run_context(type(new_run_id())(int=0), 1).is_valid


@pytest.mark.process
def test_without_the_packages_it_says_what_to_install() -> None:
    """At the import, in one line."""
    code = "import sys; sys.modules['opentelemetry'] = None; import turnledger.telemetry"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs a package: pip install 'turnledger[telemetry]'" in result.stderr
