"""Overrides store in a ledger: who changed which text of a prompt, when, is on record.

Each prompt has one stream of versions (`prompt_stream_id`). "latest" is its last version; another
tag names a version, and is moved to a later one when that has proved itself. A run records the
version that it used, and goes on with that one whatever happens to the stream meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID

from turnledger.ledger import (
    Event,
    InvalidInputError,
    Ledger,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    prompt_stream_id,
)
from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import short_repr
from turnledger.ledger.events.types import LATEST, TAG_NAME
from turnledger.projections import PromptOverrides, PromptState, fold
from turnledger.runtime.agent.prompts.override_texts import (
    OverrideTexts,
    authored_texts,
    replaced_digest,
    text_digest,
)
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.template import PromptTemplate

AnyPrompt: TypeAlias = Prompt[Any] | PromptTemplate[Any]


@check_methods()
class LedgerOverridesStore:
    """Overrides as events in a ledger: versioned, tagged, and never lost.

    Changes go on from the last version: of two that are made at once, the second is a
    ConcurrentAppendError, and nothing of it is written.
    """

    name = "ledger"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # --- reading ---

    def section_overrides(self, ns: str, key: str, tag: str = LATEST) -> OverrideTexts | None:
        """Return the texts that a tag names; None if the prompt or the tag does not exist.

        Args:
            ns: The prompt's namespace.
            key: The prompt's key.
            tag: "latest" for the last version, or a tag that was moved.
        """
        stream = prompt_stream_id(ns, key)
        version, state = self._head(stream)
        if tag == LATEST and version:
            return _texts(state, version)
        return self.at_version(ns, key, state.tags[tag]) if tag in state.tags else None

    def at_version(self, ns: str, key: str, version: int) -> OverrideTexts | None:
        """Return the texts as they were at a version; None if the prompt never had it."""
        stream = prompt_stream_id(ns, key)
        if not 0 <= version <= self._ledger.head(stream):
            return None
        return _texts(self._state(stream, version), version)

    # --- changing ---

    def set_section_override(
        self,
        prompt: AnyPrompt,
        *,
        tag: str = LATEST,
        path: str,
        body: str,
        note: str = "",
        set_by: str = "",
    ) -> int:
        """Override a text of a prompt; return the version of the stream that has it.

        It is applied while the prompt has the text that it has now.

        Args:
            prompt: The prompt, or its template.
            tag: "latest", or a tag that is moved to the new version: a new one, or one that
                names the last version's texts.
            path: A section's path, or "tool:NAME" for the description of a tool.
            body: The text; for a section a template, as in MarkdownSection.
            note: Why.
            set_by: Who.
        """
        template = template_of(prompt)
        made = _set(template, path, body, replaced_digest(template, path, body), note, set_by)
        return self._change(template, tag, lambda _: [made], moved_by=set_by)

    def delete(
        self,
        prompt: AnyPrompt,
        *,
        tag: str = LATEST,
        path: str | None = None,
        note: str = "",
        cleared_by: str = "",
    ) -> int:
        """Remove the override of a text, or all; return the version of the stream without it.

        Args:
            prompt: The prompt, or its template.
            tag: As in `set_section_override`.
            path: The text's path; None for all of them.
            note: Why.
            cleared_by: Who.
        """
        template = template_of(prompt)

        def cleared(state: PromptState) -> list[Event]:
            return [
                PromptOverrideCleared(
                    prompt_ns=template.ns,
                    prompt_key=template.key,
                    path=one,
                    note=note,
                    cleared_by=cleared_by,
                )
                for one in state.overrides
                if path in (None, one)
            ]

        return self._change(template, tag, cleared, moved_by=cleared_by)

    def seed(self, prompt: AnyPrompt, *, tag: str = LATEST) -> int:
        """Record the authored texts that have no override yet, to be edited; return the version.

        Args:
            prompt: The prompt, or its template.
            tag: As in `set_section_override`.
        """
        template = template_of(prompt)

        def missing(state: PromptState) -> list[Event]:
            return [
                _set(template, path, text, text_digest(text), "seeded", "")
                for path, text in authored_texts(template).items()
                if path not in state.overrides
            ]

        return self._change(template, tag, missing)

    def move_tag(
        self, ns: str, key: str, *, tag: str, version: int, note: str = "", moved_by: str = ""
    ) -> int:
        """Let a tag name a version; return the version of the stream that records it.

        Args:
            ns: The prompt's namespace.
            key: The prompt's key.
            tag: The tag, any but "latest".
            version: The version that it names from now on.
            note: Why.
            moved_by: Who.
        """
        check_tag(tag)
        stream = prompt_stream_id(ns, key)
        moved = PromptTagMoved(
            prompt_ns=ns,
            prompt_key=key,
            tag_name=tag,
            version=version,
            note=note,
            moved_by=moved_by,
        )
        return self._ledger.append(stream, moved, self._ledger.head(stream)).version

    # --- inside ---

    def _change(
        self,
        template: PromptTemplate[Any],
        tag: str,
        changes: Callable[[PromptState], list[Event]],
        *,
        moved_by: str = "",
    ) -> int:
        """Append changes after the last version, and move the tag to it; the version with them."""
        stream = prompt_stream_id(template.ns, template.key)
        head, state = self._head(stream)
        if tag != LATEST:
            check_tag(tag)
            named = state.tags.get(tag)
            if named is not None and self._state(stream, named).overrides != state.overrides:
                raise InvalidInputError(
                    f"Tag {tag!r} names version {named} of prompt {template.path}, whose texts "
                    f"were changed since, up to version {head}. Change them with tag='latest', "
                    f"then move the tag: move_tag(..., tag={tag!r}, version=...)."
                )
        events = changes(state)
        version = head + len(events)
        if tag != LATEST and state.tags.get(tag) != version:
            events.append(
                PromptTagMoved(
                    prompt_ns=template.ns,
                    prompt_key=template.key,
                    tag_name=tag,
                    version=version,
                    moved_by=moved_by,
                )
            )
        if events:
            self._ledger.append(stream, events, head)
        return version

    def _head(self, stream: UUID) -> tuple[int, PromptState]:
        head = self._ledger.head(stream)
        return head, self._state(stream, head)

    def _state(self, stream: UUID, version: int) -> PromptState:
        records = self._ledger.read(stream, until=version) if version else ()
        return fold(records, PromptOverrides())


def template_of(prompt: AnyPrompt) -> PromptTemplate[Any]:
    """The template of a prompt, or the template itself."""
    return prompt.template if isinstance(prompt, Prompt) else prompt


def _texts(state: PromptState, version: int) -> OverrideTexts:
    return OverrideTexts(
        {path: one.body for path, one in state.overrides.items()},
        {path: one.replaces for path, one in state.overrides.items()},
        version,
    )


def _set(
    template: PromptTemplate[Any], path: str, body: str, replaces: str, note: str, set_by: str
) -> PromptOverrideSet:
    return PromptOverrideSet(
        prompt_ns=template.ns,
        prompt_key=template.key,
        path=path,
        body=body,
        replaces=replaces,
        note=note,
        set_by=set_by,
    )


def check_tag(tag: str) -> None:
    """InvalidInputError for a name that a tag can't have."""
    if not re.fullmatch(TAG_NAME, tag) or len(tag) > 200:
        raise InvalidInputError(
            f"Invalid tag {short_repr(tag)}: expected 1 to 200 letters, digits, '.', '_' and '-', "
            f"not beginning with '.', and not {LATEST!r}, which is always the last version."
        )
