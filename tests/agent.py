"""A small agent for tests: a prompt of one task with its tools, and a model that is scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from turnledger.ledger import TokenUsage
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Reply,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
)

USAGE = TokenUsage(input_tokens=10, output_tokens=3)
RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")


class Crash(BaseException):
    """Ends the process, as far as the loop can tell."""


def says(text: str | None, **more: Any) -> Reply:
    """A reply of the model."""
    return Reply(text=text, usage=USAGE, **more)


def calls(*asked: tuple[str, str, str] | tuple[str, str], text: str | None = None) -> Reply:
    """A reply with calls: id, tool and arguments."""
    return says(text, tool_calls=tuple(ToolCall(*one) for one in asked))


def task(
    request: Any,
    text: str,
    tools: Iterable[Tool[Any, Any]],
    *,
    name: str = "tests/task",
    title: str = "Task",
    output: Any = None,
    more: Sequence[MarkdownSection[Any]] = (),
) -> Prompt[Any]:
    """A prompt whose section `task` says `text`, with the fields of the request.

    Args:
        request: What the prompt is bound to.
        text: The template of the section.
        tools: What the section offers.
        name: Namespace and key of the prompt.
        title: The section's title.
        output: The type of a structured answer.
        more: Sections that follow.
    """
    kind: Any = MarkdownSection[type(request)]  # type: ignore[misc]
    section = kind(title=title, template=text, key="task", tools=list(tools))
    template: Any = PromptTemplate if output is None else PromptTemplate[output]
    ns, key = name.split("/")
    return Prompt(template(ns=ns, key=key, sections=[section, *more])).bind(request)


class ScriptedLoop(MainLoop[RequestT, OutputT]):
    """A loop with a scripted model, a bus of its own and an empty session; it lacks a prompt."""

    def __init__(
        self,
        replies: Sequence[Any] | Callable[[Any], Reply],
        *,
        bus: InProcessEventBus | None = None,
        adapter_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        adapter: ScriptedAdapter[Any] = ScriptedAdapter(replies, **(adapter_options or {}))
        super().__init__(adapter=adapter, bus=bus or InProcessEventBus(), **options)

    def create_session(self) -> Session:
        return Session(bus=self._bus)
