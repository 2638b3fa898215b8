"""A span that has begun, with what is known of it so far; ended, it is one of the SDK's.

Trace ids are run ids. Span ids are hashes of the run and of the version that began the span: the
same run has the same ids in every ledger, every process and every export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Final, TypeAlias
from uuid import UUID

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from turnledger.adapters.telemetry.conventions import ERROR_TYPE
from turnledger.ledger import Record

Attribute: TypeAlias = str | bool | int | float | Sequence[str]
Attributes: TypeAlias = Mapping[str, Attribute]

# How much of an error's text is the description of a status.
LONGEST_ERROR: Final = 1_000
DEFAULT_RESOURCE: Final = Resource({"service.name": "turnledger"})


@cache
def _scope() -> InstrumentationScope:
    return InstrumentationScope("turnledger", version("turnledger"))


def span_context(run_id: UUID, name: str) -> SpanContext:
    """The context of a span: `name` is the version that began it, and "run" before that of a run.

    An id of zeros would be invalid.
    """
    digest = sha256(f"{run_id}/{name}".encode()).digest()
    span_id = int.from_bytes(digest[:8], "big") or 1
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(run_id.int or 1, span_id, is_remote=False, trace_flags=flags)


def run_context(run_id: UUID, start: int) -> SpanContext:
    """The context of the span of a run that began, or went on after its end, with a version."""
    return span_context(run_id, f"run {start}")


def nanoseconds(record: Record) -> int:
    """A record's time as OpenTelemetry counts it."""
    return record.commit * 1_000


@dataclass(kw_only=True)
class OpenSpan:
    """A span that has begun."""

    name: str
    kind: SpanKind
    context: SpanContext
    parent: SpanContext | None
    started: int
    attributes: dict[str, Attribute]
    links: tuple[Link, ...] = ()
    events: list[Event] = field(default_factory=list)
    ended: int = 0
    # The version that ended it.
    ended_by: int = 0
    status: Status = field(default_factory=lambda: Status(StatusCode.UNSET))

    def note(self, name: str, record: Record, attributes: Attributes) -> None:
        """Add an event."""
        self.events.append(Event(name, attributes, nanoseconds(record)))

    def fail(self, error_type: str, message: str) -> None:
        """Give it the status of an error."""
        self.attributes[ERROR_TYPE] = error_type
        self.status = Status(StatusCode.ERROR, message[:LONGEST_ERROR])

    def end(self, record: Record) -> None:
        """Set its end; what is set until the end of the commit still counts."""
        self.ended, self.ended_by = nanoseconds(record), record.version

    def readable(self, resource: Resource) -> ReadableSpan:
        """The span as exporters take it."""
        return ReadableSpan(
            self.name,
            context=self.context,
            parent=self.parent,
            resource=resource,
            attributes=self.attributes,
            events=tuple(self.events),
            links=self.links,
            kind=self.kind,
            status=self.status,
            start_time=self.started,
            end_time=self.ended,
            instrumentation_scope=_scope(),
        )
