"""View of a prompt stream: the overrides in force, by path, and the versions that tags name."""

from __future__ import annotations

from typing import assert_never, final, get_args

import msgspec

from turnledger.ledger import PromptOverrideCleared, PromptOverrideSet, PromptTagMoved, Record
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import canonical, combine
from turnledger.projections.projection import Projection


class PromptOverride(msgspec.Struct, frozen=True):
    """The override of one text, and the version of the stream that set it."""

    body: str
    replaces: str
    version: int
    note: str = ""
    set_by: str = ""


@final
class PromptState(msgspec.Struct, frozen=True):
    """The overrides of a prompt by path, and its tags; empty in a run."""

    ns: str = ""
    key: str = ""
    overrides: dict[str, PromptOverride] = {}
    tags: dict[str, int] = {}


_Read = PromptOverrideSet | PromptOverrideCleared | PromptTagMoved


@explain_methods(skip=("apply", "apply_all"))
class PromptOverrides(Projection[PromptState]):
    """Folds the overrides that were set and cleared, and the tags that were moved."""

    name = "prompt"
    reads = get_args(_Read)

    def initial(self) -> PromptState:
        return PromptState()

    def apply(self, state: PromptState, record: Record) -> PromptState:
        event = record.event
        assert isinstance(event, _Read)
        overrides, tags = dict(state.overrides), dict(state.tags)
        match event:
            case PromptOverrideSet():
                overrides[event.path] = PromptOverride(
                    event.body, event.replaces, record.version, event.note, event.set_by
                )
            case PromptOverrideCleared():
                overrides.pop(event.path, None)
            case PromptTagMoved():
                tags[event.tag_name] = event.version
            case _:
                assert_never(event)
        return PromptState(event.prompt_ns, event.prompt_key, overrides, tags)

    def digest(self, state: PromptState) -> bytes:
        return combine("prompt", canonical(state))
