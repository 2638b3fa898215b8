"""Valid arguments by annotation, around one ledger in memory with some runs in it."""

from __future__ import annotations

import collections.abc
import inspect
import io
import random
import threading
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import turnledger.adapters
import turnledger.ledger
import turnledger.projections
import turnledger.runtime
from tests.agent import ScriptedLoop, calls, says, task
from tests.conformance.samples import WHEN, note
from tests.fuzz.callables.public import Public
from tests.fuzz.material import CountingClock, named_id, populate
from turnledger.ledger import (
    Ledger,
    Limits,
    Record,
)
from turnledger.ledger.clock import Clock
from turnledger.ledger.runs.transaction import Lease
from turnledger.projections import Conversation, Projection, RunState, Table, UsageByDay
from turnledger.runtime import (
    Budget,
    CheckpointBackend,
    FilesystemCheckpointBackend,
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    Message,
    MessageBuilder,
    OptionResultBuilder,
    Prompt,
    PromptTemplate,
    ProviderAdapter,
    ScriptedAdapter,
    Session,
    SnapshotableFilesystem,
    Tool,
    ToolContext,
    ToolResult,
)
from turnledger.runtime.agents.agent import Agent

NOTHING: Any = object()


class NoValidValueError(Exception):
    """No valid value of a type is known."""


@dataclass(frozen=True)
class Question:
    """A request and the parameters of a tool."""

    text: str = "?"


@dataclass(frozen=True)
class Plan:
    """A slice of a session."""

    text: str = "plan"


def look_up(params: Question, *, context: ToolContext) -> ToolResult[Any]:
    return ToolResult("found")


TOOL: Any = Tool[Question, None](name="look_up", description="Looks up.", handler=look_up)


class Loop(ScriptedLoop[Question, None]):
    """A loop that asks once and answers."""

    def create_prompt(self, request: Question) -> Prompt[None]:
        return task(request, "${text}", [TOOL])


class World:
    """A ledger and what can be made around it; one for each callable, so that none disturbs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger.open("memory://", clock=CountingClock())
        self.ids = populate(self.ledger)
        self.run_id = self.ids["plain"]
        self.names = _names()
        self._made: dict[Any, Callable[[], Any]] = {
            Ledger: lambda: self.ledger,
            UUID: lambda: self.run_id,
            Clock: CountingClock,
            Path: lambda: folder,
            Record: lambda: self.ledger.record(self.run_id, 1),
            Session: self._session,
            MainLoop: self._loop,
            ProviderAdapter: lambda: ScriptedAdapter([says("Done.")]),
            ScriptedAdapter: lambda: ScriptedAdapter([says("Done.")]),
            Projection: Conversation,
            Table: UsageByDay,
            Tool: lambda: TOOL,
            Agent: lambda: Agent(
                "fuzz", model=[says("Done.")], instructions="Answer.", ledger=self.ledger
            ),
            MarkdownSection: lambda: MarkdownSection(title="T", template="text", key="key"),
            PromptTemplate: lambda: PromptTemplate(ns="tests", key="fuzz"),
            Prompt: lambda: task(Question(), "${text}", [TOOL]),
            Message: lambda: MessageBuilder().add_text("hello").to_message(),
            OptionResultBuilder: lambda: OptionResultBuilder(
                MessageBuilder().add_option_call("f").option_calls[-1]
            ),
            SnapshotableFilesystem: lambda: SnapshotableFilesystem(folder),
            CheckpointBackend: lambda: FilesystemCheckpointBackend(folder),
            Budget: lambda: Budget(max_total_tokens=10),
            RunState: RunState.initial,
            turnledger.ledger.Claim: lambda: self.ledger.claim(self.ids["single"]),
            turnledger.ledger.Appended: lambda: self.ledger.append(
                named_id("appended"), note(), turnledger.ledger.ANY
            ),
            turnledger.ledger.DerivedData: lambda: self.ledger.derived_data("fuzz"),
            turnledger.ledger.RunInfo: lambda: self.ledger.run(self.run_id),
            turnledger.ledger.SecretPattern: lambda: turnledger.ledger.SecretPattern("a", "abc"),
            turnledger.ledger.CustomEvent: note,
            turnledger.runtime.EventBus: InProcessEventBus,
            turnledger.runtime.ControlBus: InProcessEventBus,
            Limits: Limits,
            Lease: lambda: Lease(str(self.run_id), "w", 1, "h", 2),
            threading.Event: threading.Event,
            random.Random: lambda: random.Random(1),
        }

    def close(self) -> None:
        self.ledger.close()

    def _session(self) -> Session:
        session = Session(bus=InProcessEventBus())
        session.declare(Plan, name="plan")
        return session

    def _loop(self) -> Any:
        replies = [calls(("c1", "look_up", '{"text":"a"}')), says("Done.")]
        return Loop(replies, ledger=self.ledger, request_type=Question)

    def instance(self, kind: type) -> Any:
        """A valid instance of a public class."""
        return self.value(kind)

    def argument(self, public: Public, parameter: inspect.Parameter, instance: Any) -> Any:
        """A valid argument, or NoValidValueError."""
        if parameter.name == "state" and hasattr(instance, "initial"):
            return instance.initial()
        return self.value(self.annotation(public, parameter))

    def annotation(self, public: Public, parameter: inspect.Parameter) -> Any:
        """A parameter's type; text is looked up where the function is."""
        found = parameter.annotation
        if found is inspect.Parameter.empty:
            raise NoValidValueError(parameter.name)
        if isinstance(found, typing.ForwardRef):
            found = found.__forward_arg__
        if isinstance(found, str):
            try:
                return eval(found, {**self.names, **public.globals})
            except NameError as error:
                raise NoValidValueError(found) from error
        return found

    def value(self, kind: Any) -> Any:
        """A valid value of a type."""
        origin = typing.get_origin(kind)
        inner = typing.get_args(kind)
        if origin is typing.Annotated:
            return self.value(inner[0])
        if origin in (typing.Union, types.UnionType):
            return self._first(inner)
        if origin is Literal:
            return inner[0]
        made = self._made.get(origin or kind)
        if made is not None:
            return made()
        if kind is Any or kind is object:
            return {"a": 1}
        plain = _PLAIN.get(origin or kind, NOTHING)
        if plain is not NOTHING:
            return plain() if callable(plain) and not inspect.isclass(plain) else plain
        if origin is tuple:
            return tuple(self.value(one) for one in inner if one is not Ellipsis)
        if origin in _MANY:
            return [self.value(inner[0])]
        if origin in _MAPPINGS:
            return {"a" if inner[0] is Any else self.value(inner[0]): self.value(inner[1])}
        if isinstance(kind, typing.TypeVar):
            return self.value(kind.__bound__) if kind.__bound__ else "text"
        return self._constructed(origin or kind)

    def _first(self, kinds: tuple[Any, ...]) -> Any:
        for kind in sorted(kinds, key=lambda kind: kind is type(None)):
            try:
                return self.value(kind)
            except NoValidValueError:
                continue
        raise NoValidValueError(str(kinds))

    def _constructed(self, kind: Any) -> Any:
        """An instance, with valid values for all that it requires."""
        if not inspect.isclass(kind) or getattr(kind, "_is_protocol", False):
            raise NoValidValueError(str(kind))
        if issubclass(kind, Exception):
            return ValueError("given")
        if issubclass(kind, Enum):
            return next(iter(kind))
        try:
            public = Public(kind.__name__, kind)
            named: dict[str, Any] = {}
            plain: list[Any] = []
            for one in public.parameters:
                if one.default is not inspect.Parameter.empty or one.kind in _VARIABLE:
                    continue
                value = self.value(self.annotation(public, one))
                if one.kind is one.KEYWORD_ONLY:
                    named[one.name] = value
                else:
                    plain.append(value)
            return kind(*plain, **named)
        except NoValidValueError:
            raise
        except Exception as error:
            raise NoValidValueError(f"{kind}: {error}") from error


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_MANY = (
    list,
    set,
    frozenset,
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Sequence,
    collections.abc.Collection,
)
_MAPPINGS = (dict, collections.abc.Mapping)
_PLAIN: dict[Any, Any] = {
    str: "text",
    int: 1,
    float: 1.0,
    bool: False,
    bytes: b"bytes",
    type(None): None,
    datetime: WHEN,
    timedelta: timedelta(seconds=5),
    collections.abc.Callable: lambda: lambda *args, **kwargs: None,
    type: lambda: Plan,
    dict: lambda: {},  # noqa: PIE807 - a class stands for itself here
    list: lambda: [],  # noqa: PIE807
    typing.BinaryIO: lambda: io.BytesIO(b""),
}


def _names() -> dict[str, Any]:
    """Names that annotations use and that are imported for type checkers only."""
    found: dict[str, Any] = {}
    for package in (
        turnledger.ledger,
        turnledger.projections,
        turnledger.runtime,
        turnledger.adapters,
    ):
        found |= {name: getattr(package, name) for name in package.__all__}
    return found | {
        name: getattr(collections.abc, name)
        for name in ("Callable", "Iterable", "Iterator", "Mapping", "Sequence")
    }
