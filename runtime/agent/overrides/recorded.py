"""Rendering for a run that has begun: with the texts that it was begun with.

A prompt is made by the program, and in part by an overrides store, which people change while
runs are under way. So a run is rendered with the version of the texts that it recorded. If those
texts are not to be had any more, and all that the program decides is as it was, the recorded
system message and tool descriptions are used themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import msgspec

from turnledger.ledger import Ledger, TurnledgerError, UsedOverrides
from turnledger.ledger.errors import error_text
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.runtime.agent.overrides.ledger_store import LedgerOverridesStore
from turnledger.runtime.agent.prompts.override_texts import (
    LEFT_OUT,
    TOOL,
    PromptOverridesStore,
    RecordedPrompt,
    store_name,
)
from turnledger.runtime.agent.prompts.render import NO_TOOLS, RenderedPrompt, described, tool_digest

OutputT = TypeVar("OutputT")
# Renders a prompt with the texts that a store has for a tag, or with its own.
Render: TypeAlias = Callable[[PromptOverridesStore | None, str], RenderedPrompt[OutputT]]

logger = logger_of("turnledger.overrides")


@dataclass(frozen=True)
class _Given:
    """A store that has just these texts."""

    name: str
    texts: Mapping[str, str]

    def section_overrides(self, ns: str, key: str, tag: str) -> Mapping[str, str]:
        return self.texts


def tell_stale(rendered: RenderedPrompt[Any]) -> None:
    """Log a warning for each override that is not applied since the program changed its text."""
    for path in rendered.stale_overrides:
        logger.warning(
            "prompt %s/%s: the override of %s is not applied, since the text that it replaces has "
            "changed. Set it again, or delete it.",
            rendered.ns,
            rendered.key,
            path,
        )


def render_as_recorded(
    render: Render[OutputT],
    recorded: RecordedPrompt,
    store: PromptOverridesStore | None,
    tag: str,
    ledger: Ledger,
) -> RenderedPrompt[OutputT]:
    """Render a prompt with the overrides of its record; its digest is another if it has changed.

    Args:
        render: Renders the prompt.
        recorded: The prompt as it was recorded.
        store: The store that the caller has now.
        tag: The caller's tag, for a record that does not name one.
        ledger: The run's ledger, which may hold the prompt's texts.
    """
    used = recorded.overrides
    own = render(None, "")
    if used is None:
        if store is None or own.digest == recorded.digest:
            return own
        return render(store, tag)  # before catalogue 4 it was not recorded whether one was used
    last = own
    for source in _sources(used, store, ledger):
        try:
            texts = _texts(source, used, own)
            last = render(_Given(used.store, texts or {}), used.tag)
        except TurnledgerError as error:
            logger.warning(
                "the overrides of %s/%s can't be used: %s", own.ns, own.key, error_text(error)
            )
            continue
        if last.digest == recorded.digest:
            return replace(last, overrides=used)
    without = render(_Given(used.store, dict.fromkeys(used.paths, LEFT_OUT)), used.tag)
    texts_known = {TOOL + tool.name for tool in recorded.tools if tool.spec}
    lost = {TOOL + tool.name for tool in without.tools}.intersection(used.paths) - texts_known
    if without.digest != used.authored or lost:
        return last
    logger.warning(
        "prompt %s/%s: its overrides are not those of the record any more (%s, tag %s): the "
        "recorded text is used.",
        own.ns,
        own.key,
        used.store,
        used.tag,
    )
    return with_recorded_text(without, recorded, ledger)


def with_recorded_prompt(
    rendered: RenderedPrompt[OutputT], recorded: RecordedPrompt, ledger: Ledger
) -> RenderedPrompt[OutputT] | None:
    """The recorded prompt with the handlers of the program; None if its tools do not allow it.

    They do if the program has each recorded tool as it was described then. Tools that are new are
    left out.

    Args:
        rendered: The prompt as the program makes it.
        recorded: The prompt as it was recorded.
        ledger: Has the blobs with the recorded tools.
    """
    if not recorded.tools and recorded.tools_digest != NO_TOOLS:
        # A record before catalogue 2, which does not name its tools.
        same = recorded.tools_digest == rendered.tools_digest
        return with_recorded_text(rendered, recorded, ledger) if same else None
    now = {tool.name: tool for tool in rendered.tools}
    if any(tool.name not in now for tool in recorded.tools):
        return None
    kept = replace(rendered, tools=tuple(now[tool.name] for tool in recorded.tools))
    made = with_recorded_text(kept, recorded, ledger)
    pairs = zip(made.tools, recorded.tools, strict=True)
    return made if all(tool_digest(tool) == was.digest for tool, was in pairs) else None


def with_recorded_text(
    rendered: RenderedPrompt[OutputT], recorded: RecordedPrompt, ledger: Ledger
) -> RenderedPrompt[OutputT]:
    """The prompt with its recorded text and tool descriptions in place of those rendered now.

    Args:
        rendered: The prompt as the program makes it.
        recorded: The prompt as it was recorded.
        ledger: Has the blobs with the recorded tools.
    """
    specs = {tool.name: ledger.blob(tool.spec) for tool in recorded.tools if tool.spec}
    replaced = recorded.overrides.paths if recorded.overrides is not None else ()
    return replace(
        rendered,
        text=recorded.text,
        tools=tuple(
            described(tool, msgspec.json.decode(specs[tool.name])["description"])
            if TOOL + tool.name in replaced
            else tool
            for tool in rendered.tools
        ),
        digest=recorded.digest,
        tools_digest=recorded.tools_digest,
        offered=recorded.tools,
        specs=tuple(specs.values()),
        overrides=recorded.overrides,
        from_record=True,
    )


def _sources(
    used: UsedOverrides, store: PromptOverridesStore | None, ledger: Ledger
) -> Iterator[PromptOverridesStore]:
    """Where the recorded texts may be: in the run's own ledger, or in the caller's store."""
    if used.store == LedgerOverridesStore.name:
        yield LedgerOverridesStore(ledger)
    if store is not None:
        yield store


def _texts(
    source: PromptOverridesStore, used: UsedOverrides, prompt: RenderedPrompt[Any]
) -> Mapping[str, str] | None:
    at_version = getattr(source, "at_version", None)
    if used.version is not None and callable(at_version) and store_name(source) == used.store:
        found: Mapping[str, str] | None = at_version(prompt.ns, prompt.key, used.version)
        return found
    return source.section_overrides(prompt.ns, prompt.key, used.tag)
