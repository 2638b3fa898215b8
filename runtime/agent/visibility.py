"""Visibility of a prompt's sections: shown in full, or as a summary until the model opens them.

A section has its own default. Overrides are session state (`VisibilityOverrides`), so they
survive a restart and can be read at any version of the run. The tool with which a model opens
sections is in `runtime.agent.prompts.open_sections_tool`.

A section's path is the dotted path of the keys from the top: "reference", "reference.api".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import InvalidInputError, TurnledgerError, short_repr
from turnledger.projections.session.reducers import reducer


class SectionVisibility(Enum):
    """How a section is rendered."""

    FULL = "full"
    SUMMARY = "summary"


class SetVisibilityOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session event: render the section at a path with this visibility from now on."""

    path: str
    visibility: SectionVisibility

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInputError(
                f"Invalid path {short_repr(self.path)}: expected dotted section keys, such as "
                '"reference.api"'
            )
        if not isinstance(self.visibility, SectionVisibility):
            raise InvalidInputError(
                f"Invalid visibility {short_repr(self.visibility)}: expected "
                "SectionVisibility.FULL or SectionVisibility.SUMMARY"
            )


@explain_methods()
class VisibilityOverrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session state: the visibility of sections by path, where it is not the section's default.

    `session[VisibilityOverrides].apply(SetVisibilityOverride(path=..., visibility=...))`
    changes it. Paths that a prompt does not have are ignored.
    """

    overrides: dict[str, SectionVisibility] = {}

    def get(self, path: str) -> SectionVisibility | None:
        """Return the override of the section at this path; None means the section's default."""
        return self.overrides.get(path)

    def with_override(self, path: str, visibility: SectionVisibility) -> VisibilityOverrides:
        """Return a copy with one more override."""
        return VisibilityOverrides({**self.overrides, path: visibility})

    @reducer(on=SetVisibilityOverride)
    def set_override(self, event: SetVisibilityOverride) -> VisibilityOverrides:
        """Reducer for SetVisibilityOverride."""
        return self.with_override(event.path, event.visibility)


class VisibilityExpansionRequired(TurnledgerError):  # noqa: N818 - the seed's name
    """The model asks to open sections: evaluate again with `requested_overrides`.

    A control signal, not a failure: the open-sections tool raises it, and it passes through
    the loop.
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
