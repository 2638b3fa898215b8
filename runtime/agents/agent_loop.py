"""The loop of an agent: its session and its prompt, made of what `Agent` was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from turnledger.ledger import Ledger
from turnledger.runtime.agent.generics import ParamsT
from turnledger.runtime.agent.messages.builder import MessageBuilder
from turnledger.runtime.agent.messages.message import Message
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.sections import MarkdownSection, Section
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.agent.schema.values import to_text
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.bus import InProcessEventBus
from turnledger.runtime.errors import PromptRenderError
from turnledger.runtime.loop.adapter import ProviderAdapter
from turnledger.runtime.main_loop import MainLoop, MainLoopConfig
from turnledger.runtime.session.overlay import innermost_scope
from turnledger.runtime.session.session import Session

# The namespace of a prompt whose agent's name has none.
NAMESPACE = "agents"
TITLE, KEY = "Instructions", "instructions"


class _Literal(Section[None]):
    """Instructions as they were written: the whole text is the system message."""

    def __init__(self, text: str, tools: Sequence[Tool[Any, Any]]) -> None:
        super().__init__(title=TITLE, key=KEY, tools=tools)
        self._text = text

    @property
    def has_heading(self) -> bool:
        return False

    def body(self, params: Any, override: str | None = None) -> str:
        return self._text


class _Filled(MarkdownSection[ParamsT]):
    """Instructions with `${name}` for the fields of the agent's input."""

    @property
    def has_heading(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class AgentParts:
    """What an agent is made of, as its loops use it.

    Attributes:
        name: The agent's name; "ns/key" names its prompt as well.
        instructions: The system message, or a function of the input and the session.
        input: The type of the input.
        tools: What the model may call.
        output: The type of the output; None is text.
        state: The types of the session's slices.
        config: The limits.
        lease: How long a claim lasts without a heartbeat.
    """

    name: str
    instructions: str | Callable[[Any, Session], str]
    input: Any
    tools: tuple[Tool[Any, Any], ...]
    output: Any
    state: tuple[type, ...]
    config: MainLoopConfig
    lease: timedelta

    def template(self, text: str | None = None) -> PromptTemplate[Any]:
        """The prompt's template; `text` is what the function of instructions returned."""
        ns, _, key = self.name.rpartition("/")
        kind: Any = PromptTemplate
        template: PromptTemplate[Any] = (kind if self.output is None else kind[self.output])(
            ns=ns or NAMESPACE, key=key, name=self.name, sections=[self._section(text)]
        )
        return template

    def _section(self, text: str | None) -> Section[Any]:
        if text is not None or self.input is str:
            assert text is not None or isinstance(self.instructions, str)
            return _Literal(self.instructions if text is None else text, self.tools)  # type: ignore[arg-type]
        filled: Any = _Filled
        made: Section[Any] = filled[self.input](
            title=TITLE, key=KEY, template=self.instructions, tools=self.tools
        )
        return made


class AgentLoop(MainLoop[Any, Any]):
    """Runs an agent in a ledger.

    Args:
        parts: What the agent is made of.
        adapter: The provider.
        ledger: Where its runs are recorded.
    """

    def __init__(self, parts: AgentParts, adapter: ProviderAdapter[Any], ledger: Ledger) -> None:
        self.bus = InProcessEventBus()
        super().__init__(
            adapter=adapter,
            bus=self.bus,
            name=parts.name,
            ledger=ledger,
            config=parts.config,
            request_type=(parts.input, Message),
            clock=ledger.clock,
            lease=parts.lease,
        )
        self.ledger = ledger
        self._parts = parts
        self._template = parts.template() if isinstance(parts.instructions, str) else None

    def create_session(self) -> Session:
        """Return a session with the types of the agent's state."""
        session = super().create_session()
        for kind in self._parts.state:
            session.install(kind)
        return session

    def create_prompt(self, request: Any) -> Prompt[Any]:
        """Return the instructions as the system message, and the input as the user's."""
        prompt = Prompt(self._template or self._parts.template(self._instructions(request)))
        if self._template is not None and self._parts.input is not str:
            prompt = prompt.bind(*() if isinstance(request, Message) else (request,))
        return prompt.with_messages(_message_of(request))

    def _instructions(self, request: Any) -> str:
        """What the function of instructions returns, against the state that the run has."""
        scope, function = innermost_scope(), self._parts.instructions
        assert scope is not None
        assert callable(function)
        assert isinstance(scope.session, Session)
        text = function(request, scope.session)
        if not isinstance(text, str):
            raise PromptRenderError(
                f"its instructions returned {type(text).__name__}, expected text",
                prompt=self._parts.name,
            )
        return text


def _message_of(request: Any) -> Message:
    """An input as the user's message: a message as it is, text, or a value as JSON."""
    if isinstance(request, Message):
        return request
    text = request if isinstance(request, str) else to_text(request)
    return MessageBuilder().add_text(text).to_message()
