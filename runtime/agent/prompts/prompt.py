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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic

from turnledger.runtime.agent.generics import OutputT
from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.agent.prompts.render import PromptOverridesStore, RenderedPrompt, render
from turnledger.runtime.agent.prompts.sections import Section
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.errors import PromptRenderError

if TYPE_CHECKING:
    from turnledger.runtime.agent.messages.builder import MessageBuilder
    from turnledger.runtime.agent.messages.message import Message


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
            self.template,
            bound.params,
            messages=bound.messages,
            deadline=bound.deadline,
            visibility=visibility or VisibilityOverrides(),
            templates=templates or {},
            output_instructions=inject_output_instructions,
            redact=redact,
        )

    def _error(self, why: str) -> PromptRenderError:
        return PromptRenderError(why, prompt=self.template.path)


def _takes(section: Section[Any], params: object) -> bool:
    return section.params_type is not None and isinstance(params, section.params_type)
