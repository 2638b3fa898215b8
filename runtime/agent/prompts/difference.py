"""The difference of two prompts, a recorded one and one that is rendered now: texts and tools."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from turnledger.ledger import BlobNotFoundError, OfferedTool, blob_name
from turnledger.ledger.errors import IntegrityFailureError
from turnledger.runtime.agent.prompts.override_texts import RecordedPrompt
from turnledger.runtime.agent.prompts.render import NO_TOOLS, RenderedPrompt
from turnledger.runtime.errors import PromptDifference


class ToolChanges(NamedTuple):
    """The names of the tools that are new, gone, or described in another way."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def between(cls, recorded: Sequence[OfferedTool], found: Sequence[OfferedTool]) -> ToolChanges:
        was, now = ({tool.name: tool.digest for tool in tools} for tools in (recorded, found))
        return cls(
            tuple(name for name in now if name not in was),
            tuple(name for name in was if name not in now),
            tuple(name for name in was if name in now and was[name] != now[name]),
        )


def difference_of(
    recorded: RecordedPrompt, rendered: RenderedPrompt[Any], blob: Callable[[str], bytes]
) -> PromptDifference:
    """What differs between the prompt of a record and the one that is rendered now.

    Args:
        recorded: The prompt as it was recorded.
        rendered: The prompt as the program renders it.
        blob: Gives the bytes of a recorded blob.
    """
    made = {blob_name(content): content for content in rendered.specs}

    def spec(name: str) -> Any:
        try:
            return msgspec.json.decode(made[name] if name in made else blob(name)) if name else None
        except (BlobNotFoundError, IntegrityFailureError, ValueError):
            return None  # its blob is missing or damaged

    # Old records and checkpoint files do not name their tools.
    is_known = recorded.tools or recorded.tools_digest == NO_TOOLS
    was = recorded.tools if is_known else rendered.offered
    changes = ToolChanges.between(was, rendered.offered)
    return PromptDifference(
        text=diff_of(recorded.text, rendered.text),
        tools_added=changes.added,
        tools_removed=changes.removed,
        tools_changed=changes.changed,
        tools=diff_of_tools(was, rendered.offered, spec),
    )


def diff_of_tools(
    recorded: Sequence[OfferedTool], found: Sequence[OfferedTool], spec: Callable[[str], Any]
) -> str:
    """The schemas and descriptions that changed; empty if the record does not have them.

    Args:
        recorded: The recorded tools.
        found: The tools that are offered now.
        spec: Gives description and schema by the name of their blob; None if they are missing.
    """
    was, now = ({tool.name: tool for tool in tools} for tools in (recorded, found))
    changed = ToolChanges.between(recorded, found).changed
    then, today = ({name: spec(tools[name].spec) for name in changed} for tools in (was, now))
    return "" if None in then.values() else diff_of(then, today)


def diff_of(recorded: Any, found: Any) -> str:
    """The two as text, line by line: - recorded, + found."""
    was = recorded if isinstance(recorded, str) else pretty(recorded)
    now = found if isinstance(found, str) else pretty(found)
    lines = difflib.unified_diff(
        was.splitlines(), now.splitlines(), "recorded", "found", lineterm="", n=2
    )
    return "\n".join(lines)


def pretty(value: Any) -> str:
    """A value as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
