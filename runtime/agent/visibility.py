"""Which sections of a prompt are shown in full and which only as a summary.

A section says how it is shown at first; what was opened since is session state
(`VisibilityOverrides`), and so survives a restart and can be looked at at any version.
The tool that a model opens sections with is in `runtime.agent.prompts.open_sections_tool`.

A section's path is the dotted path of the keys from the top: "reference", "reference.api".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from turnledger.ledger.errors import InvalidInputError, TurnledgerError
from turnledger.projections.session.reducers import reducer


class SectionVisibility(Enum):
    """How a section is shown."""

    FULL = "full"
    SUMMARY = "summary"


class SetVisibilityOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section at a path is shown like this from now on."""

    path: str
    visibility: SectionVisibility

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInputError('path is a section\'s dotted path of keys, "reference.api" say')
        if not isinstance(self.visibility, SectionVisibility):
            raise InvalidInputError(
                "visibility is SectionVisibility.FULL or SectionVisibility.SUMMARY"
            )


class VisibilityOverrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session state: how sections are shown, by path, where it is not as they say themselves.

    `session[VisibilityOverrides].apply(SetVisibilityOverride(path=..., visibility=...))`
    changes it. Paths that a prompt does not have are of no effect on it.
    """

    overrides: dict[str, SectionVisibility] = {}

    def get(self, path: str) -> SectionVisibility | None:
        """How the section at this path is to be shown; None is as it says itself."""
        return self.overrides.get(path)

    def with_override(self, path: str, visibility: SectionVisibility) -> VisibilityOverrides:
        """The same, with one section shown like this."""
        return VisibilityOverrides({**self.overrides, path: visibility})

    @reducer(on=SetVisibilityOverride)
    def set_override(self, event: SetVisibilityOverride) -> VisibilityOverrides:
        """What a SetVisibilityOverride does."""
        return self.with_override(event.path, event.visibility)


class VisibilityExpansionRequired(TurnledgerError):  # noqa: N818 - the seed's name
    """The model wants to see sections: evaluate again with these overrides.

    It is raised within a tool and passes through the loop; it is no failure.
    """

    def __init__(
        self,
        requested_overrides: Mapping[str, SectionVisibility],
        *,
        section_keys: Sequence[str] = (),
        reason: str = "",
    ) -> None:
        self.requested_overrides = dict(requested_overrides)
        self.section_keys = tuple(section_keys) or tuple(requested_overrides)
        self.reason = reason
        named = ", ".join(self.section_keys)
        super().__init__(
            f"The model asks to open {named}: {reason or 'no reason given'}. Set the requested "
            "overrides in the session and evaluate again, as MainLoop does."
        )
