"""The sections that a prompt is made of: a title, a text, tools, and sections within.

A section says what it needs (`MarkdownSection[Params]`) and how it is shown; matching it with
parameters and putting sections together is `runtime.agent.prompts.render`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

from turnledger.runtime.agent.generics import ParamsT, Subscripted
from turnledger.runtime.agent.prompts.template_text import TemplateText, field_names
from turnledger.runtime.agent.tools.tool import Tool
from turnledger.runtime.agent.visibility import SectionVisibility
from turnledger.runtime.errors import PromptDefinitionError, TemplateTextError

# A key is one step of a dotted path.
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Section(Subscripted, ABC, Generic[ParamsT]):
    """What all sections have; a kind of section says what its text is.

    `Section[P]` takes the bound parameters of type P, or `default_params` if none are bound;
    without a subscript it takes none. `enabled` is asked with the parameters (with nothing,
    if it takes none): False leaves the section out, with all that is in it. A section that is
    shown as its `summary` hides its children and tools until the model opens it.
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
        """The section's text; `override` is a text to use in its place, if it has one."""

    @property
    def takes_override(self) -> bool:
        """Whether its text can be replaced from outside."""
        return False

    def walk(self, above: str = "", depth: int = 1) -> Iterator[tuple[str, int, Section[Any]]]:
        """This section and all below, each with its path and depth."""
        path = f"{above}.{self.key}" if above else self.key
        yield path, depth, self
        for child in self.children:
            yield from child.walk(path, depth + 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key={self.key!r})"

    def _wrong(self, why: str) -> PromptDefinitionError:
        return PromptDefinitionError(why, section=str(self.key))

    def _check(self) -> None:
        if not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise PromptDefinitionError(
                f"A section's key is 1 to 64 letters, digits, '_' and '-'; {self.key!r} is not."
            )
        if not isinstance(self.title, str) or not self.title or "\n" in self.title:
            raise self._wrong("title is one line of text")
        if not isinstance(self.visibility, SectionVisibility):
            raise self._wrong(f"visibility is a SectionVisibility, not {self.visibility!r}")
        for child in self.children:
            if not isinstance(child, Section):
                raise self._wrong(f"children are sections, and {child!r} is none")
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise self._wrong(f"tools are Tools, and {tool!r} is none")
        if self.params_type is not None and not isinstance(self.params_type, type):
            raise self._wrong(f"parameters are matched by class, and {self.params_type!r} is none")
        if self.default_params is not None and not (
            self.params_type and isinstance(self.default_params, self.params_type)
        ):
            raise self._wrong("default_params are of the type that the section is subscripted with")

    def _template(self, text: str, what: str) -> TemplateText:
        try:
            return TemplateText(text, fields=self.fields)
        except TemplateTextError as error:
            raise self._wrong(f"{what}: {error}") from error


class MarkdownSection(Section[ParamsT]):
    """A section of Markdown, with `${name}` for the fields of its parameters."""

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
            raise self._wrong("visibility is SUMMARY, so it needs a `summary`")
        self.template = self._template(template, "template")

    @property
    def takes_override(self) -> bool:
        return True

    def body(self, params: Any, override: str | None = None) -> str:
        """The template, or the override, with the parameters filled in."""
        if override is None:
            return self.template.fill(params)
        return TemplateText(override, fields=self.fields).fill(params)
