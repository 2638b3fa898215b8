"""Fold of a run's events into spans: `invoke_agent`, `chat` and `execute_tool`.

A span is given out when the commit that ended it was folded, and never again: what has been
exported stays true, and a later export only adds to it. So a span that is still open is not given.

- A run is one span from its start to its end. A run that goes on after its end, because a failed
  one is recovered, has another span from there on, linked to the one before.
- Each attempt of a call is a span. One whose outcome was lost ends where that was found out, with
  the error type `in_doubt`. A result without a start (a decided or refused call) takes no time.
- A step is inside the call that its `parent` names, everything else inside the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final
from uuid import UUID

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind

from turnledger.adapters.telemetry import content as contents
from turnledger.adapters.telemetry import conventions as names
from turnledger.adapters.telemetry.notes import NOTED, attributes_of
from turnledger.adapters.telemetry.open_span import (
    DEFAULT_RESOURCE,
    Attribute,
    OpenSpan,
    nanoseconds,
    run_context,
    span_context,
)
from turnledger.ledger import (
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.projections import Conversation
from turnledger.projections.history.message_history import blocks_of
from turnledger.projections.projection import tags_read
from turnledger.runtime.steps.messages.conversation import PROMPT_NS

WORKFLOW_TYPE: Final = "turnledger.workflow"
IN_DOUBT: Final = "in_doubt"
_RunEnd = RunCompleted | RunFailed | RunParked | RunAbandoned
_ToolResult = ToolCallCompleted | ToolCallFailed
_MODEL, _TOOL = "model", "tool"
_SAID: Final = tags_read(Conversation())


class RunSpans:
    """The spans of one run, as far as it was read.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        content: Whether messages, arguments and results are in the attributes.
        resource: What the spans are of; by default a service `turnledger`.
    """

    def __init__(
        self,
        ledger: Ledger,
        run_id: UUID,
        *,
        content: bool = False,
        resource: Resource | None = None,
    ) -> None:
        self._ledger = ledger
        self._info = ledger.run(run_id)
        self._run_id = self._info.run_id
        self._content = content
        self._resource = resource or DEFAULT_RESOURCE
        self.version = self._info.parent_version
        self._run: OpenSpan | None = None
        self._last_run: SpanContext | None = None
        # A run may consist of notes only.
        self._of_run = self._described(RunStarted())
        self._tokens: Counter[str] = Counter()
        self._claim: Record | None = None
        # By kind, evaluation and call (of a model's call without an id, its turn).
        self._open: dict[tuple[str, str, str], OpenSpan] = {}
        # Those that ended in the commit at hand.
        self._ended: list[OpenSpan] = []
        self._conversation = Conversation()
        self._said = self._conversation.initial()
        # Of the commit at hand: messages, and the calls whose results they hold.
        self._messages: dict[UUID, InnerMessage] = {}
        self._answered: list[tuple[OpenSpan, ModelReplied | _ToolResult]] = []
        self._arguments: dict[str, str] = {}
        if content and self.version:
            for record in ledger.read(run_id, until=self.version):
                self._listen(record)

    @property
    def open_spans(self) -> int:
        """How many spans have begun and not ended."""
        return len(self._open) + (self._run is not None)

    def read_on(self, *, after: int = 0) -> list[ReadableSpan]:
        """Read what the run has by now; the spans that ended with a version above `after`."""
        found: list[ReadableSpan] = []
        records = self._ledger.read(self._run_id, self.version)
        for _, commit in groupby(records, key=lambda record: record.commit):
            spans = self._commit(commit)
            found += [span.readable(self._resource) for span in spans if span.ended_by > after]
        return found

    def _commit(self, records: Iterable[Record]) -> Iterator[OpenSpan]:
        """Fold one commit, and give what it ended: a reply's message may stand after the reply."""
        for record in records:
            self.version = record.version
            if self._content:
                self._listen(record)
            self._take(record, record.event)
        for span, event in self._answered:
            self._add_answer(span, event)
        ended, self._ended = self._ended, []
        # What a commit says after the end of its run is still in the run's span.
        self._set_down()
        self._messages.clear()
        self._answered.clear()
        yield from ended

    def _take(self, record: Record, event: Event) -> None:
        match event:
            case RunStarted():
                self._begin_run(record, self._described(event), self._origin(event))
            case RunClaimed() if self._run is None:
                self._claim = record
            case RunResumed():
                self._resume(record)
            case EvaluationStarted():
                self._note(record, event)
                if self._run is not None and event.prompt_ns != PROMPT_NS:
                    self._run.attributes[names.PROMPT] = f"{event.prompt_ns}/{event.prompt_key}"
            case ModelCalled():
                self._call_model(record, event)
            case ModelReplied():
                self._end_reply(record, event)
            case ModelCallFailed():
                self._end_failed_call(record, event)
            case ToolCallStarted():
                self._call_tool(record, event)
            case ToolCallCompleted() | ToolCallFailed():
                self._end_tool(record, event)
            case ToolCallInDoubt():
                self._doubt(record, event)
            case RunCompleted() | RunFailed() | RunParked() | RunAbandoned():
                self._end_run(record, event)
            case _ if type(event) in NOTED:
                self._note(record, event)
            case _:
                pass  # content, or bookkeeping of the session

    # --- the run ---

    def _described(self, event: RunStarted) -> dict[str, Attribute]:
        """The attributes of the run's spans."""
        is_workflow = event.request_type == WORKFLOW_TYPE
        of_run: dict[str, Attribute] = {
            names.OPERATION: "invoke_workflow" if is_workflow else "invoke_agent",
            names.CONVERSATION: str(event.session_id or self._run_id),
            "turnledger.run.id": str(self._run_id),
            "turnledger.run.kind": event.kind,
        }
        if agent := event.agent or self._info.agent:
            of_run[names.WORKFLOW if is_workflow else names.AGENT] = agent
        of_run |= {f"turnledger.tag.{key}": value for key, value in event.tags.items()}
        if self._content and event.request is not None:
            of_run["turnledger.request"] = contents.json_text(event.request)
        return of_run

    def _origin(self, event: RunStarted) -> tuple[Link, ...]:
        """The link to the run that a fork, a continuation or a chat turn starts from."""
        if event.parent is None:
            return ()
        first = self._ledger.run(event.parent).parent_version + 1
        of_link = {"turnledger.link": event.kind, "turnledger.at": event.at}
        return (Link(run_context(event.parent, first), of_link),)

    def _begin_run(
        self, record: Record, attributes: dict[str, Attribute], links: tuple[Link, ...]
    ) -> OpenSpan:
        self._of_run = attributes
        self._tokens.clear()
        named = attributes.get(names.AGENT) or attributes.get(names.WORKFLOW)
        operation = str(attributes[names.OPERATION])
        self._run = OpenSpan(
            name=f"{operation} {named}" if named else operation,
            kind=SpanKind.INTERNAL,
            context=run_context(self._run_id, record.version),
            parent=None,
            started=nanoseconds(record),
            attributes=dict(attributes),
            links=links,
        )
        if self._claim is not None:
            self._note(self._claim, self._claim.event)
            self._claim = None
        return self._run

    def _resume(self, record: Record) -> None:
        self._run_of(record)
        self._note(record, record.event)
        # The process that waited for these replies is gone; lost tool calls are said one by one.
        for key in [key for key in self._open if key[0] == _MODEL]:
            self._lose(self._open.pop(key), record)

    def _run_of(self, record: Record) -> OpenSpan:
        """The run's span; another one from here on, if it has ended."""
        if self._run is not None and not self._run.ended:
            return self._run
        self._set_down()
        links: tuple[Link, ...] = ()
        if self._last_run is not None:
            links = (Link(self._last_run, {"turnledger.link": "resumed"}),)
        return self._begin_run(record, self._of_run, links)

    def _set_down(self) -> None:
        """Let go of the run's span if it has ended: it is given out."""
        if self._run is not None and self._run.ended:
            self._last_run, self._run = self._run.context, None

    def _end_run(self, record: Record, event: _RunEnd) -> None:
        has_ended = self._run is None or self._run.ended
        if has_ended and isinstance(event, RunParked | RunAbandoned):
            self._note(record, event)
            return
        run = self._run_of(record)
        for span in self._open.values():
            self._lose(span, record)
        self._open.clear()
        run.attributes["turnledger.run.status"] = event.tag.partition(".")[2]
        match event:
            case RunCompleted():
                if self._content and event.output is not None:
                    run.attributes["turnledger.output"] = contents.json_text(event.output)
            case RunFailed():
                run.fail(event.error_type, event.error_message)
            case RunParked():
                run.fail("parked", event.reason)
            case RunAbandoned():
                self._note(record, event)
        self._end(run, record)

    # --- calls ---

    def _begin(
        self,
        key: tuple[str, str, str],
        record: Record,
        name: str,
        parent: str,
        attributes: dict[str, Attribute],
    ) -> OpenSpan:
        lost = self._open.pop(key, None)
        if lost is not None:
            self._lose(lost, record)
        run = self._run_of(record)
        inside = next((s for k, s in self._open.items() if parent and k[2] == parent), run)
        span = OpenSpan(
            name=name,
            kind=SpanKind.CLIENT if key[0] == _MODEL else SpanKind.INTERNAL,
            context=span_context(self._run_id, str(record.version)),
            parent=inside.context,
            started=nanoseconds(record),
            attributes={
                **attributes,
                names.CONVERSATION: self._of_run[names.CONVERSATION],
                "turnledger.run.id": str(self._run_id),
                "turnledger.version": record.version,
            },
        )
        self._open[key] = span
        return span

    def _end(self, span: OpenSpan, record: Record) -> None:
        span.end(record)
        self._ended.append(span)

    def _lose(self, span: OpenSpan, record: Record) -> None:
        """End a span whose outcome nobody recorded."""
        span.fail(IN_DOUBT, "The outcome is unknown.")
        self._end(span, record)

    def _call_model(self, record: Record, event: ModelCalled) -> None:
        operation, provider = names.operation_of(event), names.provider_of(event)
        attributes: dict[str, Attribute] = {
            names.OPERATION: operation,
            names.PROVIDER: provider,
            "turnledger.attempt": event.attempt,
        }
        for name, value in (
            (names.REQUEST_MODEL, event.model),
            ("turnledger.call_id", event.call_id),
            ("turnledger.client", event.client),
        ):
            if value:
                attributes[name] = value
        if self._content and event.evaluation_id:
            history = self._said.history(event.evaluation_id)
            attributes |= contents.request_of(history.system, history.to_list())
        key = _model_key(event)
        name = f"{operation} {event.model}" if event.model else operation
        self._begin(key, record, name, event.parent, attributes)
        run = self._run_of(record)
        run.attributes.setdefault(names.PROVIDER, provider)
        if event.model:
            run.attributes.setdefault(names.REQUEST_MODEL, event.model)

    def _end_reply(self, record: Record, event: ModelReplied) -> None:
        span = self._open.pop(_model_key(event), None)
        if span is None:
            return
        usage = names.tokens_of(event.usage)
        span.attributes.update(usage)
        if event.model:
            span.attributes[names.RESPONSE_MODEL] = event.model
        if event.finish_reason:
            span.attributes[names.FINISH_REASONS] = (event.finish_reason,)
        self._tokens.update({name: usage.get(name, 0) for name in names.TOKENS.values()})
        self._run_of(record).attributes.update(+self._tokens)
        self._answered.append((span, event))
        self._end(span, record)

    def _end_failed_call(self, record: Record, event: ModelCallFailed) -> None:
        key = _model_key(event)
        span = self._open.get(key)
        if span is None or (event.call_id and not event.final):
            self._note(record, event)  # one attempt of a step's request
            return
        del self._open[key]
        span.fail(event.error_type, event.error_message)
        if event.status is not None:
            span.attributes[names.STATUS_CODE] = event.status
        self._end(span, record)

    def _call_tool(self, record: Record, event: ToolCallStarted) -> None:
        attributes = _of_tool(event)
        if event.parent:
            attributes["turnledger.parent"] = event.parent
        arguments = event.arguments or self._arguments.get(event.call_id, "")
        if self._content and arguments:
            attributes[names.ARGUMENTS] = arguments
        key = (_TOOL, event.evaluation_id, event.call_id)
        self._begin(key, record, f"execute_tool {event.name}", event.parent, attributes)

    def _end_tool(self, record: Record, event: _ToolResult) -> None:
        key = (_TOOL, event.evaluation_id, event.call_id)
        if key not in self._open:  # refused before its start, or decided by a person
            self._begin(key, record, f"execute_tool {event.name}", "", _of_tool(event))
        span = self._open.pop(key)
        if isinstance(event, ToolCallFailed):
            span.fail(event.error_type, event.error_message)
        elif event.unrecordable:
            span.attributes["turnledger.unrecordable"] = event.unrecordable
        self._answered.append((span, event))
        self._end(span, record)

    def _doubt(self, record: Record, event: ToolCallInDoubt) -> None:
        """A call in doubt may be of a tool or, as a step, of a model."""
        self._note(record, event)
        for kind in (_TOOL, _MODEL):
            span = self._open.pop((kind, event.evaluation_id, event.call_id), None)
            if span is not None:
                self._lose(span, record)

    # --- all other events ---

    def _note(self, record: Record, event: Event) -> None:
        """An event of the open call that it names, else of the run.

        What comes after the run's span was given out is a span of its own, which takes no time.
        """
        attributes = attributes_of(event, record.version, content=self._content)
        call = getattr(event, "call_id", "")
        span = next((s for key, s in self._open.items() if call and key[2] == call), self._run)
        if span is not None:
            span.note(record.tag, record, attributes)
            return
        late = OpenSpan(
            name=record.tag,
            kind=SpanKind.INTERNAL,
            context=span_context(self._run_id, str(record.version)),
            parent=self._last_run,
            started=nanoseconds(record),
            attributes={"turnledger.run.id": str(self._run_id), **attributes},
        )
        if isinstance(event, RunParked):
            late.fail("parked", event.reason)
        self._end(late, record)

    # --- contents ---

    def _listen(self, record: Record) -> None:
        """Keep what is said, for the requests and results that repeat it."""
        if record.tag in _SAID:
            self._said = self._conversation.apply(self._said, record)
        event = record.event
        if isinstance(event, MessageAppended):
            message = event.message
            self._messages[message.message_id] = message
            self._arguments.update({call.call_id: call.arguments for call in message.tool_calls})

    def _add_answer(self, span: OpenSpan, event: ModelReplied | _ToolResult) -> None:
        """Add a reply's or a result's text, which its message holds; a step's value holds it."""
        if not self._content:
            return
        message = self._messages.get(event.message_id) if event.message_id else None
        if isinstance(event, ModelReplied):
            if message is not None and event.call_id:
                # Of a step's request, which evaluation it belongs to is known by its reply.
                history = self._said.history(message.evaluation_id)
                span.attributes.update(contents.call_of(history, event.finish_reason))
            elif message is not None:
                span.attributes.update(contents.reply_of(blocks_of(message), event.finish_reason))
        elif message is not None:
            span.attributes[names.RESULT] = message.content
        elif isinstance(event, ToolCallCompleted):
            span.attributes[names.RESULT] = contents.json_text(event.value)


def _model_key(event: ModelCalled | ModelReplied | ModelCallFailed) -> tuple[str, str, str]:
    return (_MODEL, event.evaluation_id, event.call_id or f"turn {event.turn}")


def _of_tool(event: ToolCallStarted | _ToolResult) -> dict[str, Attribute]:
    return {
        names.OPERATION: "execute_tool",
        names.TOOL_NAME: event.name,
        names.TOOL_CALL: event.call_id,
        names.TOOL_TYPE: "function",
        "turnledger.attempt": event.attempt,
    }
