"""Renders a prompt: from sections and parameters to the text and tools that a model gets.

Rendering is a pure function: the same template, parameters, overrides and session state give the
same text, tools and digest in every process. It reads no clock, no environment and no set order.
Each section has a heading one `#` deeper than its parent's, from `##` to at most `######`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal

from turnledger.ledger import OfferedTool, UsedOverrides, blob_name
from turnledger.ledger.errors import InvalidInputError, error_text
from turnledger.projections.digests import canonical, combine
from turnledger.projections.session.messages import HasSlices
from turnledger.runtime.agent.generics import OutputT
from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.agent.prompts.open_sections_tool import OPEN_SECTIONS, hint
from turnledger.runtime.agent.prompts.output import OutputSpec
from turnledger.runtime.agent.prompts.override_texts import LEFT_OUT, TOOL, OverrideTexts, choose
from turnledger.runtime.agent.prompts.sections import Section
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.agent.tools.tool import Tool, tool_to_spec
from turnledger.runtime.agent.visibility import SectionVisibility, VisibilityOverrides
from turnledger.runtime.errors import PromptRenderError, TemplateTextError

if TYPE_CHECKING:
    from turnledger.runtime.agent.messages.message import Message

OUTPUT_TITLE = "Response format"
# The digest of no tools at all.
NO_TOOLS = combine("tools", canonical([])).hex()


@dataclass(frozen=True)
class ShownSection:
    """A rendered section: its path, title and visibility, and whether its text was replaced."""

    path: str
    title: str
    visibility: SectionVisibility
    overridden: bool = False


@dataclass(frozen=True, kw_only=True)
class RenderedPrompt(Generic[OutputT]):
    """A prompt as it is sent to a model.

    `digest` covers the text, the tools, the output's schema and the messages that the
    conversation begins with; `tools_digest` covers the tools. `unused_overrides` are paths for
    which the overrides store has a text and the prompt has no section: they are ignored. So are
    `stale_overrides`, of texts that the program has changed since. `overrides` says which were
    applied; None without a store. With `from_record`, the texts are those that a run recorded.
    """

    ns: str
    key: str
    name: str | None
    text: str
    tools: tuple[Tool[Any, Any], ...] = ()
    output: OutputSpec[OutputT] | None = None
    digest: str
    tools_digest: str
    offered: tuple[OfferedTool, ...] = ()
    # The bytes that `OfferedTool.spec` names: description and schema of each tool, as JSON.
    specs: tuple[bytes, ...] = ()
    params: tuple[Any, ...] = ()
    sections: tuple[ShownSection, ...] = ()
    unused_overrides: tuple[str, ...] = ()
    stale_overrides: tuple[str, ...] = ()
    overrides: UsedOverrides | None = None
    from_record: bool = False
    deadline: Deadline | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The paths of the sections that are shown in full."""
        return self._paths(SectionVisibility.FULL)

    @property
    def summarised(self) -> tuple[str, ...]:
        """The paths of the sections that are shown as a summary."""
        return self._paths(SectionVisibility.SUMMARY)

    @property
    def output_type(self) -> Any:
        """The type of the output, or of its items; None if it is text."""
        return self.output.output_type if self.output is not None else None

    @property
    def container(self) -> Literal["object", "array"] | None:
        return self.output.container if self.output is not None else None

    @property
    def allow_extra_keys(self) -> bool:
        return self.output is not None and self.output.allow_extra_keys

    def _paths(self, visibility: SectionVisibility) -> tuple[str, ...]:
        return tuple(one.path for one in self.sections if one.visibility is visibility)


@dataclass
class _Page:
    """What rendering has collected so far."""

    paragraphs: list[str] = field(default_factory=list)
    sections: list[ShownSection] = field(default_factory=list)
    tools: dict[str, Tool[Any, Any]] = field(default_factory=dict)


def render_overridden(
    template: PromptTemplate[OutputT],
    given: Mapping[str, str],
    rendered: Callable[[Mapping[str, str]], RenderedPrompt[OutputT]],
    *,
    store: str,
    tag: str,
) -> RenderedPrompt[OutputT]:
    """Render with the overrides of a store, as far as the prompt takes them.

    Args:
        template: The prompt.
        given: What the store has for it, by path.
        rendered: Renders the prompt with texts in place of its own.
        store: The store's name.
        tag: The tag that the store was asked for.
    """
    chosen = choose(template, given)
    made = rendered(chosen.applied)
    without = rendered(dict.fromkeys(chosen.applied, LEFT_OUT)) if chosen.applied else made
    return replace(
        made,
        unused_overrides=chosen.unused,
        stale_overrides=chosen.stale,
        overrides=UsedOverrides(
            store=store,
            tag=tag,
            digest=combine("overrides", canonical(chosen.applied)).hex(),
            authored=without.digest,
            version=given.version if isinstance(given, OverrideTexts) else None,
            paths=tuple(chosen.applied),
        ),
    )


def render(
    template: PromptTemplate[OutputT],
    params: tuple[Any, ...],
    *,
    messages: tuple[Message, ...],
    deadline: Deadline | None,
    visibility: VisibilityOverrides,
    templates: Mapping[str, str],
    state: HasSlices,
    output_instructions: bool,
    redact: Callable[[str], str] | None = None,
) -> RenderedPrompt[OutputT]:
    """Render a template with parameters; `templates` replace its own texts, by path."""
    page = _Page()
    renderer = _Renderer(template.path, params, visibility, templates, state, page)
    for section in template.sections:
        renderer.add(section, "", 1)
    output: OutputSpec[Any] | None = template.output
    if output is not None and output_instructions:
        page.paragraphs.append(f"## {OUTPUT_TITLE}\n\n{output.instructions}")
    if any(one.visibility is SectionVisibility.SUMMARY for one in page.sections):
        page.tools[OPEN_SECTIONS.name] = OPEN_SECTIONS
    for name, tool in page.tools.items():
        description = templates.get(TOOL + name)
        if description is not None and tool is not OPEN_SECTIONS:
            page.tools[name] = described(tool, description)
    text = "\n\n".join(page.paragraphs)
    specs = [tool_to_spec(tool) for tool in page.tools.values()]
    specs_json = canonical(specs)
    schema = canonical(output.schema if output is not None else None)
    opening = _digest_text(messages)
    if redact is not None:
        # Another secret in the same place is the same prompt: what is recorded is the same.
        text = redact(text)
        if not isinstance(text, str):
            raise InvalidInputError(
                f"Invalid redact: it returned {type(text).__name__}, expected text."
            )
        opening = tuple(redact(one.decode()).encode() for one in opening)
    contents = [_content_of(one, redact) for one in specs]
    return RenderedPrompt(
        ns=template.ns,
        key=template.key,
        name=template.name,
        text=text,
        tools=tuple(page.tools.values()),
        output=output,
        digest=combine("prompt", text.encode(), specs_json, schema, *opening).hex(),
        tools_digest=combine("tools", specs_json).hex(),
        offered=tuple(
            OfferedTool(one["function"]["name"], _digest_of(one), blob_name(content))
            for one, content in zip(specs, contents, strict=True)
        ),
        specs=tuple(contents),
        params=params,
        sections=tuple(page.sections),
        deadline=deadline,
    )


def described(tool: Tool[Any, Any], description: str) -> Tool[Any, Any]:
    """The tool with another description."""
    made = copy(tool)
    made.description = inspect.cleandoc(description)
    return made


@dataclass(frozen=True)
class _Renderer:
    prompt: str  # its path, for errors
    bound: tuple[Any, ...]
    visibility: VisibilityOverrides
    templates: Mapping[str, str]
    state: HasSlices
    page: _Page

    def add(self, section: Section[Any], above: str, depth: int) -> None:
        """Add a section and its children to the page, unless it is disabled."""
        path = f"{above}.{section.key}" if above else section.key
        params = self._params(section, path)
        if not self._enabled(section, params, path):
            return
        shown_as = self.visibility.get(path) or section.visibility
        is_summary = shown_as is SectionVisibility.SUMMARY
        override = self.templates.get(path) if section.takes_override else None
        text = self._text(section, params, path, override, is_summary=is_summary)
        heading = ["#" * min(depth + 1, 6) + f" {section.title}"] if section.has_heading else []
        self.page.paragraphs.extend([*heading, text] if text else heading)
        self.page.sections.append(
            ShownSection(path, section.title, shown_as, override is not None and not is_summary)
        )
        if is_summary:
            self.page.paragraphs.append(hint(path))
            return
        self.page.tools.update({tool.name: tool for tool in section.tools})
        for child in section.children:
            self.add(child, path, depth + 1)

    def _error(self, why: str, path: str) -> PromptRenderError:
        return PromptRenderError(why, prompt=self.prompt, section=path)

    def _params(self, section: Section[Any], path: str) -> Any:
        """Return the bound parameters of exactly the section's type, else of a subclass."""
        kind = section.params_type
        if kind is None:
            return None
        fitting = [one for one in self.bound if isinstance(one, kind)]
        exact = [one for one in fitting if type(one) is kind]
        found = exact or fitting
        if len(found) > 1:
            raise self._error(f"more than one of the bound parameters is a {kind.__name__}", path)
        if found:
            return found[0]
        if section.default_params is not None:
            return section.default_params
        raise self._error(
            f"it needs parameters of type {kind.__name__}, and none are bound: "
            f"Prompt(template).bind({kind.__name__}(...))",
            path,
        )

    def _enabled(self, section: Section[Any], params: Any, path: str) -> bool:
        if section.enabled is None:
            return True
        try:
            asked = section.enabled() if section.params_type is None else section.enabled(params)
        except Exception as error:
            raise self._error(f"`enabled` raised {error_text(error)}", path) from error
        return bool(asked)

    def _text(
        self,
        section: Section[Any],
        params: Any,
        path: str,
        override: str | None,
        *,
        is_summary: bool,
    ) -> str:
        if is_summary and section.summary is None:
            raise self._error("it has no `summary` to be shown as", path)
        try:
            if is_summary and section.summary is not None:
                text = section.summary.fill(params)
            else:
                text = section.body_in(self.state, params, override)
            text.encode()
        except (TemplateTextError, UnicodeEncodeError) as error:
            whose = "the text of the overrides store: " if override is not None else ""
            raise self._error(f"{whose}{error}", path) from error
        return text


def _digest_text(messages: tuple[Message, ...]) -> tuple[bytes, ...]:
    """Return what the prompt's digest covers of the opening messages."""
    if not messages:
        return ()
    # Imports pydantic, which prompts without messages do not need.
    from turnledger.runtime.agent.prompts.opening_messages import digest_text

    return (digest_text(messages),)


def tool_digest(tool: Tool[Any, Any]) -> str:
    """The digest of a tool's description and parameters, as `OfferedTool` has it."""
    return _digest_of(tool_to_spec(tool))


def _digest_of(spec: dict[str, Any]) -> str:
    """Digest of a tool's spec without its name: a renamed tool keeps it."""
    return combine("tool", canonical(_unnamed(spec))).hex()[:16]


def _content_of(spec: dict[str, Any], redact: Callable[[str], str] | None) -> bytes:
    """The blob with a tool's spec without its name, and without secrets."""
    text = canonical(_unnamed(spec)).decode()
    return (text if redact is None else redact(text)).encode()


def _unnamed(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec["function"].items() if name != "name"}
