"""Prompt: a template with parameters, messages and a deadline bound to it.

    template = PromptTemplate[Review](
        ns="reviews",
        key="code-review",
        sections=[MarkdownSection[Params](title="Task", template="Look at ${path}.", key="task")],
    )
    prompt = Prompt(template).bind(Params(path="a.py"))

Templates and prompts are immutable values; rendering (`prompts.render`) changes neither. A
prompt is identified by `ns` and `key`. Parameters are matched to sections by their type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from turnledger.ledger.arguments import explain_methods
from turnledger.projections.session.messages import HasSlices
from turnledger.runtime.agent.generics import OutputT
from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore, store_name
from turnledger.runtime.agent.prompts.render import RenderedPrompt, render, render_overridden
from turnledger.runtime.agent.prompts.sections import Section
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.agent.visibility import VisibilityOverrides
from turnledger.runtime.errors import PromptRenderError

if TYPE_CHECKING:
    from turnledger.runtime.agent.messages.builder import MessageBuilder
    from turnledger.runtime.agent.messages.message import Message


@explain_methods()
@dataclass(frozen=True)
class Prompt(Generic[OutputT]):
    """A template and what is bound to it; the conversation begins with `messages`."""

    template: PromptTemplate[OutputT]
    params: tuple[Any, ...] = ()
    deadline: Deadline | None = None
    messages: tuple[Message, ...] = ()
    # The bytes of media in the messages that are not in a ledger yet.
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
        """The name for display: `name`, else namespace and key."""
        return self.template.name or self.template.path

    def bind(self, *params: Any) -> Prompt[OutputT]:
        """Return a prompt with more parameters; they replace bound ones of the same type."""
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
        """Return a prompt whose conversation begins with these messages, after those it has.

        Args:
            messages: Media, or an earlier conversation; a builder gives its message and its
                bytes. Calls need their results, and the last message is not the assistant's.
            blobs: The bytes of other media, unless the ledger has them already.
        """
        from turnledger.runtime.agent.prompts.opening_messages import (  # and with it pydantic
            check_opening,
            opening_messages,
        )

        more, held = opening_messages(messages, self.template.path)
        every = (*self.messages, *more)
        check_opening(every, self.template.path)
        return replace(self, messages=every, blobs=(*self.blobs, *held, *blobs))

    def render(
        self,
        *params: Any,
        overrides_store: PromptOverridesStore | None = None,
        overrides_tag: str = "latest",
        visibility: VisibilityOverrides | None = None,
        state: HasSlices | None = None,
        inject_output_instructions: bool | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> RenderedPrompt[OutputT]:
        """Render the prompt as it is sent to a model.

        Args:
            params: Further parameters to bind.
            overrides_store: Has texts that replace those of sections and tools.
            overrides_tag: Which of the store's texts.
            visibility: Which sections are shown in full, beside their defaults.
            state: The session, for sections that show something of its state.
            inject_output_instructions: Overrides the template's setting.
            redact: Removes secrets from the text, and from what the digest covers.
        """
        bound = self.bind(*params)
        if inject_output_instructions is None:
            inject_output_instructions = self.template.inject_output_instructions
        rendered = partial(
            render,
            self.template,
            bound.params,
            messages=bound.messages,
            deadline=bound.deadline,
            visibility=visibility or VisibilityOverrides(),
            state=_NoSlices() if state is None else state,
            output_instructions=inject_output_instructions,
            redact=redact,
        )
        if overrides_store is None:
            return rendered(templates={})
        return render_overridden(
            self.template,
            overrides_store.section_overrides(self.ns, self.key, overrides_tag) or {},
            lambda templates: rendered(templates=templates),
            store=store_name(overrides_store),
            tag=overrides_tag,
        )

    def _error(self, why: str) -> PromptRenderError:
        return PromptRenderError(why, prompt=self.template.path)


class _NoSlices:
    """The state of a prompt that is rendered without a session."""

    def select_all(self, kind: Any, /) -> tuple[Any, ...]:
        return ()


def _takes(section: Section[Any], params: object) -> bool:
    return section.params_type is not None and isinstance(params, section.params_type)
