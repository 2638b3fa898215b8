"""Override texts: what an overrides store gives for a prompt, and which of it is applied.

A path is a section's dotted path, or "tool:NAME" for a tool's description. An override that
names the digest of the authored text that it replaces is applied only while the prompt has that
text: it was written with that one in mind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.ledger.events.types import EvaluationStarted, OfferedTool, UsedOverrides
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.agent.prompts.template_text import TemplateText
from turnledger.runtime.errors import PromptRenderError, TemplateTextError

TOOL = "tool:"
# Stands in for overridden texts in the digest of what the program alone decides; permanent.
LEFT_OUT = "(overridden)"


class PromptOverridesStore(Protocol):
    """Source of texts that replace those of a prompt's sections and tools.

    A store that keeps versions gives `OverrideTexts`, and has a method
    `at_version(ns, key, version)` that gives those of an earlier version: a run that was begun
    with them goes on with them.
    """

    def section_overrides(self, ns: str, key: str, tag: str) -> Mapping[str, str] | None:
        """Return templates by path for a prompt and a tag; None if there are none."""
        ...


@dataclass(frozen=True)
class OverrideTexts(Mapping[str, str]):
    """Texts by path, with what they replace and which version of a store they are.

    Attributes:
        texts: The texts, by section path or "tool:NAME".
        replaces: By path, `text_digest` of the authored text; without, any text is replaced.
        version: The store's version of the prompt's texts; None if it keeps no versions.
    """

    texts: Mapping[str, str]
    replaces: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None

    def __getitem__(self, path: str) -> str:
        return self.texts[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def store_name(store: PromptOverridesStore) -> str:
    """Return the name by which a run records a store: its `name`, else that of its class."""
    name = getattr(store, "name", None)
    return name if isinstance(name, str) else type(store).__name__


class RecordedPrompt(NamedTuple):
    """A prompt as an evaluation recorded it: its text, its tools, and the overrides in it."""

    text: str
    digest: str
    tools_digest: str
    tools: tuple[OfferedTool, ...]
    overrides: UsedOverrides | None

    @classmethod
    def of(cls, started: EvaluationStarted, text: str) -> RecordedPrompt:
        """The prompt of an evaluation, from its first event and the system message after it."""
        return cls(
            text, started.prompt_digest, started.tools_digest, started.tools, started.overrides
        )


class Choice(NamedTuple):
    """Which overrides a prompt takes.

    Attributes:
        applied: Texts by path.
        unused: Paths that the prompt does not have.
        stale: Paths whose authored text has changed since the override was written.
    """

    applied: dict[str, str]
    unused: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


@check_arguments
def text_digest(text: str) -> str:
    """Return the digest of an authored text, as an override names it."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


@check_arguments
def authored_texts(template: PromptTemplate[Any]) -> dict[str, str]:
    """Return the texts of a prompt that can be overridden, by path."""
    sections = {path: one.authored for path, _, one in template.walk() if one.takes_override}
    tools = {
        TOOL + tool.name: tool.description for _, _, one in template.walk() for tool in one.tools
    }
    return sections | tools


@check_arguments
def replaced_digest(template: PromptTemplate[Any], path: str, body: str) -> str:
    """Check an override before it is stored; return the digest of the text that it replaces.

    Args:
        template: The prompt.
        path: A section's path, or "tool:NAME".
        body: The text.

    Raises:
        InvalidInputError: The prompt has no such text, or could not be rendered with the new one.
    """
    authored = authored_texts(template)
    if path not in authored:
        raise InvalidInputError(
            f"Invalid path {short_repr(path)}: expected a text of prompt {template.path} that can "
            f"be overridden: {', '.join(sorted(authored)) or 'it has none'}."
        )
    try:
        body.encode()
        for here, _, section in template.walk():
            if here == path:
                TemplateText(body, fields=section.fields)
    except (TemplateTextError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"Invalid text for {path!r}: {error}") from error
    if path.startswith(TOOL) and not body.strip():
        raise InvalidInputError(f"Invalid text for {path!r}: expected text, got none.")
    return text_digest(authored[path])


def choose(template: PromptTemplate[Any], given: Mapping[str, str]) -> Choice:
    """Return which of the given overrides a prompt takes; PromptRenderError if one is not text."""
    if not given:
        return Choice({})
    authored = authored_texts(template)
    replaces = given.replaces if isinstance(given, OverrideTexts) else {}
    applied: dict[str, str] = {}
    stale = []
    for path in sorted(set(given) & set(authored)):
        text: object = given[path]
        if not isinstance(text, str) or (path.startswith(TOOL) and not text.strip()):
            raise PromptRenderError(
                f"invalid text of the overrides store for {path!r}: expected text"
                + (", and not empty" if isinstance(text, str) else f", got {type(text).__name__}"),
                prompt=template.path,
            )
        if replaces.get(path) in (None, "", text_digest(authored[path])):
            applied[path] = text
        else:
            stale.append(path)
    return Choice(applied, tuple(sorted(set(given) - set(authored))), tuple(stale))
