"""The workspace digest: a text about the workspace, written once and shown in later prompts.

A session holds it as a slice, one for each digest section. `ProviderAdapter.optimize` has a model
write it; tools and programs may set it themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from turnledger.ledger.arguments import explain_arguments, explain_methods
from turnledger.ledger.errors import InvalidInputError, short_repr
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections.session.messages import HasSlices
from turnledger.runtime.agent.prompts.sections import Section
from turnledger.runtime.agent.prompts.template_text import TemplateText
from turnledger.runtime.session.session import Session

DIGEST_KEY = "workspace-digest"
PLACEHOLDER = (
    "There is no digest of the workspace yet. Look at its files before you rely on what they hold."
)
logger = logger_of("turnledger.workspace")


class OptimizationScope(Enum):
    """Where `optimize` stores a digest: in the caller's session, or in an overrides store."""

    SESSION = "session"
    GLOBAL = "global"


@dataclass(frozen=True)
class OptimizationResult:
    """What an optimization came to.

    Attributes:
        response: The PromptResponse: the model's answer, and the tool results that led to it.
        digest: The digest, as it was stored.
        scope: Where it was stored.
        section_key: The key of the WorkspaceDigestSection that shows it.
    """

    response: Any
    digest: str
    scope: OptimizationScope
    section_key: str


@dataclass(frozen=True)
class WorkspaceDigest:
    """A text about the workspace, for the digest section with this key."""

    __ledger_name__ = "turnledger.WorkspaceDigest"

    section_key: str
    body: str


@explain_arguments
def set_workspace_digest(session: Session, section_key: str, body: str) -> WorkspaceDigest:
    """Set the digest of a section, in place of an earlier one.

    Args:
        session: Where it is set; within a tool, it is part of the tool's result.
        section_key: The key of the WorkspaceDigestSection.
        body: The text, Markdown; InvalidInputError if it is empty.
    """
    if not isinstance(body, str) or not body.strip():
        raise InvalidInputError(f"Invalid digest {short_repr(body)}: expected text.")
    digest = WorkspaceDigest(_checked_key(section_key), body.strip())
    session[WorkspaceDigest].seed([*_others(session, section_key), digest])
    return digest


@explain_arguments
def clear_workspace_digest(session: Session, section_key: str = DIGEST_KEY) -> None:
    """Remove the digest of a section from the session, if there is one."""
    if latest_workspace_digest(session, section_key) is not None:
        session[WorkspaceDigest].seed(_others(session, section_key))


@explain_arguments
def latest_workspace_digest(
    session: HasSlices, section_key: str = DIGEST_KEY
) -> WorkspaceDigest | None:
    """Return the digest that the session has for a section; None if there is none."""
    key = _checked_key(section_key)
    found: tuple[WorkspaceDigest, ...] = session.select_all(WorkspaceDigest)
    return next((one for one in found if one.section_key == key), None)


def _others(session: Session, key: str) -> list[WorkspaceDigest]:
    return [one for one in session.select_all(WorkspaceDigest) if one.section_key != key]


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidInputError(f"Invalid section key {short_repr(key)}: expected text.")
    return key


@explain_methods()
class WorkspaceDigestSection(Section[None]):
    """Shows the session's digest, else the text of the overrides store, else a placeholder.

    Each evaluation shows the digest that was set when it began: one that a tool sets is shown in
    the next evaluation.
    """

    def __init__(self, *, key: str = DIGEST_KEY) -> None:
        """Make a section; `key` says which of the session's digests it shows."""
        super().__init__(title="Workspace digest", key=key)
        self._warns = True

    @property
    def takes_override(self) -> bool:
        return True

    def body(self, params: Any, override: str | None = None) -> str:
        """Return the override, filled like that of any section, else a placeholder."""
        if override is not None:
            return TemplateText(override, fields=self.fields).fill(params)
        if self._warns:
            logger.warning("section %s has no workspace digest to show", self.key)
        return PLACEHOLDER

    def body_in(self, state: HasSlices, params: Any, override: str | None = None) -> str:
        """Return the session's digest, else `body`."""
        found = latest_workspace_digest(state, self.key)
        return self.body(params, override) if found is None else found.body

    def clone(self) -> WorkspaceDigestSection:
        """Return the section for the prompt that has the digest written: it need not warn."""
        twin = WorkspaceDigestSection(key=self.key)
        twin._warns = False
        return twin
