"""Prompts: a template of sections, and the parameters that are bound to it.

    template = PromptTemplate[Review](
        ns="reviews",
        key="code-review",
        sections=[MarkdownSection[Params](title="Task", template="Look at ${path}.", key="task")],
    )
    prompt = Prompt(template).bind(Params(path="a.py"))

Both are values that can be shared; rendering (`prompts.render`) changes neither. A prompt is
known by `ns` and `key`. Parameters are matched to sections by their type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic

from turnledger.runtime.agent.generics import OutputT, Subscripted
from turnledger.runtime.agent.prompts.open_sections_tool import OPEN_SECTIONS, OPEN_SECTIONS_NAME
from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.agent.prompts.render import PromptOverridesStore, RenderedPrompt, render
from turnledger.runtime.agent.prompts.sections import Section
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.errors import PromptDefinitionError, PromptRenderError, SchemaError

if TYPE_CHECKING:
    from turnledger.runtime.agent.messages.builder import MessageBuilder
    from turnledger.runtime.agent.messages.message import Message
    from turnledger.runtime.agent.models.limits import Deadline

# Both can be steps of a path in a file system, a URL or a listing.
_STEP = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_NS = re.compile(rf"{_STEP}(/{_STEP})*")
_KEY = re.compile(_STEP)
_LONGEST = 200


class PromptTemplate(Subscripted, Generic[OutputT]):
    """What a prompt says, before its parameters.

    `PromptTemplate[Out]` asks for output of type Out: a dataclass, a msgspec Struct, a
    pydantic model, or a list of one of these; without a subscript, and with `str`, the
    answer is text. `inject_output_instructions` lets the prompt say what output it wants; a
    provider that enforces schemas itself turns that off.
    """

    def __init__(
        self,
        *,
        ns: str,
        key: str,
        sections: Iterable[Section[Any]] = (),
        name: str | None = None,
        allow_extra_keys: bool = False,
        inject_output_instructions: bool = True,
    ) -> None:
        self.ns = _checked("ns", ns, _NS)
        self.key = _checked("key", key, _KEY)
        self.name = name
        self.sections = tuple(sections)
        self.allow_extra_keys = allow_extra_keys
        self.inject_output_instructions = inject_output_instructions
        self._check_sections()
        self._check_tools()
        self.output: OutputSpec[OutputT] | None = self._output()

    @property
    def path(self) -> str:
        """Namespace and key, as errors and listings name it."""
        return f"{self.ns}/{self.key}"

    def walk(self) -> Iterator[tuple[str, int, Section[Any]]]:
        """All sections in their order, each with its path and depth."""
        for section in self.sections:
            yield from section.walk()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ns={self.ns!r}, key={self.key!r})"

    def _check_sections(self) -> None:
        for section in self.sections:
            if not isinstance(section, Section):
                raise PromptDefinitionError(
                    f"sections are MarkdownSections and the like, and {section!r} is none",
                    prompt=self.path,
                )
        seen: set[str] = set()
        for path, _, _ in self.walk():
            if path in seen:
                raise PromptDefinitionError(
                    "two sections have this key; give one of them another",
                    prompt=self.path,
                    section=path,
                )
            seen.add(path)

    def _check_tools(self) -> None:
        """A name is one tool's. The same tool may be in several sections, and is offered once."""
        owners: dict[str, tuple[str, Tool[Any, Any]]] = {}
        for path, _, section in self.walk():
            for tool in section.tools:
                owner, other = owners.setdefault(tool.name, (path, tool))
                if other is not tool:
                    raise PromptDefinitionError(
                        f"its tool {tool.name!r} has the name of one in section {owner!r}; "
                        "rename one of them",
                        prompt=self.path,
                        section=path,
                    )
                if tool.name == OPEN_SECTIONS_NAME and tool is not OPEN_SECTIONS:
                    raise PromptDefinitionError(
                        f"the name {tool.name!r} is taken by the tool that opens sections; rename "
                        "this one",
                        prompt=self.path,
                        section=path,
                    )

    def _output(self) -> OutputSpec[Any] | None:
        if not self.type_arguments:
            return None
        try:
            return OutputSpec.of(self.type_arguments[0], allow_extra_keys=self.allow_extra_keys)
        except SchemaError as error:
            raise PromptDefinitionError(f"its output: {error}", prompt=self.path) from error


@dataclass(frozen=True)
class Prompt(Generic[OutputT]):
    """A template and what is bound to it; `messages` are what the conversation opens with."""

    template: PromptTemplate[OutputT]
    params: tuple[Any, ...] = ()
    deadline: Deadline | None = None
    messages: tuple[Message, ...] = ()
    # The bytes of media in the messages that no ledger has yet.
    blobs: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def ns(self) -> str:
        return self.template.ns

    @property
    def key(self) -> str:
        return self.template.key

    @property
    def name(self) -> str | None:
        return self.template.name

    @property
    def label(self) -> str:
        """What people call it: its name, else namespace and key."""
        return self.template.name or self.template.path

    def bind(self, *params: Any) -> Prompt[OutputT]:
        """A prompt with these parameters too; one of a type that is bound already replaces it."""
        kinds = [type(one) for one in params]
        for place, kind in enumerate(kinds):
            if kind in kinds[:place]:
                raise self._error(f"two parameters of type {kind.__name__} are bound at once")
            if not any(_takes(section, params[place]) for _, _, section in self.template.walk()):
                raise self._error(
                    f"no section takes parameters of type {kind.__name__}; "
                    f"write MarkdownSection[{kind.__name__}](...) where they belong"
                )
        kept = [one for one in self.params if type(one) not in kinds]
        return replace(self, params=(*kept, *params))

    def with_messages(
        self, *messages: Message | MessageBuilder, blobs: Iterable[bytes] = ()
    ) -> Prompt[OutputT]:
        """A prompt whose conversation goes on with these: images to look at, what was said before.

        A builder gives its message, and the bytes that it holds. `blobs` are the bytes of
        other media; bytes that the ledger has need not be given. Calls come with their
        results, and the last message is not the assistant's.
        """
        from turnledger.runtime.agent.prompts.opening_messages import (  # and with it pydantic
            check_opening,
            opening,
        )

        more, held = opening(messages, self.template.path)
        every = (*self.messages, *more)
        check_opening(every, self.template.path)
        return replace(self, messages=every, blobs=(*self.blobs, *held, *blobs))

    def render(
        self,
        *params: Any,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
        visibility: VisibilityOverrides | None = None,
        inject_output_instructions: bool | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> RenderedPrompt[OutputT]:
        """The prompt as it is sent, with further parameters bound to it.

        A section's text comes from the store, if it has one for it under the tag.
        `inject_output_instructions` goes before what the template says. `redact` takes secrets
        out of the text, and out of what the digest covers.
        """
        bound = self.bind(*params)
        templates = None
        if overrides_store is not None:
            templates = overrides_store.section_overrides(self.ns, self.key, overrides_tag)
        if inject_output_instructions is None:
            inject_output_instructions = self.template.inject_output_instructions
        return render(
            bound,
            visibility=visibility or VisibilityOverrides(),
            templates=templates or {},
            output_instructions=inject_output_instructions,
            redact=redact,
        )

    def _error(self, why: str) -> PromptRenderError:
        return PromptRenderError(why, prompt=self.template.path)


def _takes(section: Section[Any], params: object) -> bool:
    return section.params_type is not None and isinstance(params, section.params_type)


def _checked(what: str, value: object, pattern: re.Pattern[str]) -> str:
    if isinstance(value, str) and pattern.fullmatch(value) and len(value) <= _LONGEST:
        return value
    steps = "steps of these between '/'" if pattern is _NS else "in one step"
    raise PromptDefinitionError(
        f"A prompt's {what} is 1 to {_LONGEST} letters, digits, '.', '_' and '-', not beginning "
        f"with '.', {steps}; {value!r} is not."
    )
