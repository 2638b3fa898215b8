"""The seeds' examples that need no loop, typed as they stand but for the import path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    SetVisibilityOverride,
    Tool,
    ToolContext,
    ToolResult,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)
from turnledger.runtime.agent.tools import call_tool


@dataclass(frozen=True)
class Request:
    topic: str


@dataclass(frozen=True)
class Params:
    topic: str

    @classmethod
    def from_request(cls, request: Request) -> Params:
        return cls(request.topic)


@dataclass(frozen=True)
class Output:
    answer: str


@dataclass(frozen=True)
class SendEmailParams:
    idempotency_key: str


@dataclass(frozen=True)
class SentEmail:
    key: str


SentEmails = SentEmail


@dataclass(frozen=True)
class WriteFileParams:
    path: str


@dataclass(frozen=True)
class WriteFileResult:
    size: int


class FakeSlice:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def all(self) -> tuple[Any, ...]:
        return tuple(self._values)

    def append(self, value: Any) -> None:
        self._values.append(value)


class FakeSession:
    """As much of a session as a handler of the examples uses."""

    def __init__(self) -> None:
        self._slices: dict[type, list[Any]] = {}

    def __getitem__(self, kind: type) -> FakeSlice:
        return FakeSlice(self._slices.setdefault(kind, []))


def create_prompt(request: Request) -> Prompt[Output]:
    return Prompt(PromptTemplate[Output](
        ns="agent",
        key="task",
        sections=[
            MarkdownSection[Params](
                title="Reference",
                template="...",
                summary="Reference available.",
                visibility=SectionVisibility.SUMMARY,
                key="reference",
            ),
        ],
    )).bind(Params.from_request(request))  # fmt: skip


def test_the_progressive_disclosure_example_runs() -> None:
    """S2-11: summarised at first, and in full when it was opened."""
    prompt = create_prompt(Request("bees"))
    rendered = prompt.render()
    assert "Reference available." in rendered.text
    assert "..." not in rendered.text.split("Response format")[0]
    (tool,) = rendered.tools
    context = ToolContext(call_id="c1", prompt=prompt, rendered_prompt=rendered)
    overrides = VisibilityOverrides()
    try:
        call_tool(tool, '{"section_keys": ["reference"], "reason": "why not"}', context)
    except VisibilityExpansionRequired as e:
        for path, visibility in e.requested_overrides.items():
            event = SetVisibilityOverride(path=path, visibility=visibility)
            overrides = overrides.set_override(event)
    opened = prompt.render(visibility=overrides)
    assert opened.text.startswith("## Reference\n\n...")
    assert opened.tools == ()
    assert opened.output_type is Output


class CodeReview:
    """The template of the seed's CodeReviewLoop, with sections in the place of its dots."""

    def __init__(self, sections: list[Any]) -> None:
        self._template = PromptTemplate[Output](
            ns="reviews",
            key="code-review",
            sections=sections,
        )

    def create_prompt(self, request: Request) -> Prompt[Output]:
        return Prompt(self._template).bind(Params.from_request(request))


def test_the_code_review_example_makes_its_prompt() -> None:
    """S2-11: namespace and key are what resuming compares."""
    section = MarkdownSection[Params](title="Task", template="On ${topic}.", key="task")
    prompt = CodeReview([section]).create_prompt(Request("bees"))
    assert (prompt.ns, prompt.key) == ("reviews", "code-review")
    assert "On bees." in prompt.render().text


def send_email(params: SendEmailParams) -> None: ...


def send_email_handler(params: SendEmailParams, *, context: ToolContext) -> ToolResult:
    # Check if already sent (idempotency key in session)
    sent_emails = context.session[SentEmails].all()
    if params.idempotency_key in {e.key for e in sent_emails}:
        return ToolResult(message="Email already sent", success=True)

    # Send and record
    send_email(params)
    context.session[SentEmails].append(SentEmail(key=params.idempotency_key))
    return ToolResult(message="Email sent", success=True)


def test_the_send_email_example_runs() -> None:
    """S2-24: the second call sees what the first one kept in the session."""
    tool = Tool(name="send_email", description="Sends it.", handler=send_email_handler)
    context = ToolContext(call_id="c1", session=FakeSession())
    arguments = '{"idempotency_key": "k"}'
    said = [call_tool(tool, arguments, context).text for _ in range(2)]
    assert said == ["Email sent", "Email already sent"]


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
    tool = Tool[WriteFileParams, WriteFileResult](
        name="write_file", description="Writes it.", handler=write_file_handler
    )
    first = call_tool(tool, '{"path": "abc"}', ToolContext(call_id="c1"))
    again = call_tool(tool, '{"path": "other"}', ToolContext(call_id="c1", is_resume=True))
    assert first.text == again.text == 'Written.\n\n{"size":3}'
