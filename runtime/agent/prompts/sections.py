"""Sections of a prompt: a title, a text, tools, and child sections.

A section has a parameters type (`MarkdownSection[Params]`) and a visibility; binding parameters
and rendering is in `runtime.agent.prompts.render`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import short_repr
from turnledger.projections.session.messages import HasSlices
from turnledger.runtime.agent.generics import ParamsT, Subscripted
from turnledger.runtime.agent.prompts.template_text import TemplateText, field_names
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.agent.visibility import SectionVisibility
from turnledger.runtime.errors import PromptDefinitionError, TemplateTextError

# One step of a dotted path.
_KEY = r"[A-Za-z0-9_-]{1,64}"


@explain_methods()
class Section(Subscripted, ABC, Generic[ParamsT]):
    """Base class of sections; a subclass provides the text.

    `Section[P]` takes the bound parameters of type P, or `default_params` if none are bound;
    without a subscript it takes none. A section that is shown as its `summary` hides its
    children and tools until the model opens it.
    """

    def __init__(
        self,
        *,
        title: str,
        key: str,
        children: Iterable[Section[Any]] = (),
        enabled: Callable[..., bool] | None = None,
        summary: str | None = None,
        visibility: SectionVisibility = SectionVisibility.FULL,
        tools: Iterable[Tool[Any, Any]] = (),
        default_params: ParamsT | None = None,
    ) -> None:
        """Make a section; PromptDefinitionError if it is invalid.

        Args:
            title: The heading, one line.
            key: Unique among its siblings; the keys from the top make the section's path.
            children: Sections within this one.
            enabled: Called with the parameters (with nothing, if the section takes none);
                False leaves the section out, with its children and tools.
            summary: The text in place of the section while it is closed.
            visibility: Whether it is shown in full or as its summary at first.
            tools: Offered to the model while the section is shown in full.
            default_params: Used if no parameters of the type are bound.
        """
        self.key = key
        self.title = title.strip() if isinstance(title, str) else title
        self.children = tuple(children)
        self.enabled = enabled
        self.visibility = visibility
        self.tools = tuple(tools)
        self.default_params = default_params
        self.params_type: Any = self.type_arguments[0] if self.type_arguments else None
        if self.params_type is type(None):
            self.params_type = None
        self._check()
        self.fields = field_names(self.params_type)
        self.summary = None if summary is None else self._template(summary, "summary")

    @abstractmethod
    def body(self, params: Any, override: str | None = None) -> str:
        """Return the section's text; `override` is a template to use instead of its own."""

    def body_in(self, state: HasSlices, params: Any, override: str | None = None) -> str:
        """Return the text; by default `body`, which depends on nothing of the session.

        Args:
            state: The session's slices as they were when the evaluation began, to be read only.
            params: The parameters that are bound for the section.
            override: A template to use instead of the section's own.
        """
        return self.body(params, override)

    @property
    def has_heading(self) -> bool:
        """Whether its title stands above its text."""
        return True

    @property
    def takes_override(self) -> bool:
        """Whether an overrides store can replace its text."""
        return False

    @property
    def authored(self) -> str:
        """The text that an override replaces; empty if the section makes it when rendered."""
        return ""

    def prepare(self, resources: Mapping[str, Any]) -> None:
        """Put into the resources, by name, what the section's tools need there, such as files.

        Called once, when a run starts, before its resources are recorded. A resumed run has them
        as they were recorded, and a replay calls nothing.
        """

    def walk(self, above: str = "", depth: int = 1) -> Iterator[tuple[str, int, Section[Any]]]:
        """Iterate over this section and all below it, with path and depth."""
        path = f"{above}.{self.key}" if above else self.key
        yield path, depth, self
        for child in self.children:
            yield from child.walk(path, depth + 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key={self.key!r})"

    def _error(self, why: str) -> PromptDefinitionError:
        return PromptDefinitionError(why, section=str(self.key))

    def _check(self) -> None:
        if not isinstance(self.key, str) or not re.fullmatch(_KEY, self.key):
            raise PromptDefinitionError(
                f"Invalid section key {self.key!r}: expected 1 to 64 letters, digits, '_' and '-'."
            )
        if not isinstance(self.title, str) or not self.title or "\n" in self.title:
            raise self._error(f"invalid title {self.title!r}: expected one line of text")
        if not isinstance(self.visibility, SectionVisibility):
            raise self._error(
                f"invalid visibility {self.visibility!r}: expected a SectionVisibility"
            )
        for child in self.children:
            if not isinstance(child, Section):
                raise self._error(f"invalid child {short_repr(child)}: expected a Section")
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise self._error(f"invalid tool {short_repr(tool)}: expected a Tool")
        if self.params_type is not None and not isinstance(self.params_type, type):
            raise self._error(f"invalid parameters type {self.params_type!r}: expected a class")
        if self.default_params is not None and not (
            self.params_type and isinstance(self.default_params, self.params_type)
        ):
            raise self._error(
                "invalid default_params: expected the type that the section is subscripted with"
            )

    def _template(self, text: str, what: str) -> TemplateText:
        try:
            return TemplateText(text, fields=self.fields)
        except TemplateTextError as error:
            raise self._error(f"{what}: {error}") from error


@explain_methods()
class MarkdownSection(Section[ParamsT]):
    """A section of Markdown text, with `${name}` for the fields of its parameters."""

    def __init__(
        self,
        *,
        title: str,
        template: str,
        key: str,
        children: Iterable[Section[Any]] = (),
        enabled: Callable[..., bool] | None = None,
        summary: str | None = None,
        visibility: SectionVisibility = SectionVisibility.FULL,
        tools: Iterable[Tool[Any, Any]] = (),
        default_params: ParamsT | None = None,
    ) -> None:
        """Make a section from a Markdown `template`; the other arguments are Section's."""
        super().__init__(
            title=title,
            key=key,
            children=children,
            enabled=enabled,
            summary=summary,
            visibility=visibility,
            tools=tools,
            default_params=default_params,
        )
        if visibility is SectionVisibility.SUMMARY and summary is None:
            raise self._error("visibility is SUMMARY, but there is no `summary`")
        self.template = self._template(template, "template")

    @property
    def takes_override(self) -> bool:
        return True

    @property
    def authored(self) -> str:
        return self.template.text

    def body(self, params: Any, override: str | None = None) -> str:
        """Fill the parameters into the template, or into the override."""
        if override is None:
            return self.template.fill(params)
        return TemplateText(override, fields=self.fields).fill(params)
