"""Which sections are open is session state: folded from events, and plain to store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.given import records
from turnledger.ledger import SliceEventApplied
from turnledger.ledger.errors import InvalidInputError, TurnledgerError
from turnledger.projections import Declarations, SessionSlices, fold
from turnledger.runtime import (
    SectionVisibility,
    SetVisibilityOverride,
    VisibilityExpansionRequired,
    VisibilityOverrides,
)
from turnledger.runtime.agent.schema import to_plain

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY
settings = st.lists(st.tuples(st.sampled_from(["a", "b", "a.b"]), st.sampled_from([FULL, SUMMARY])))


def test_an_override_is_added_and_the_old_value_stays_as_it_was() -> None:
    """The latest for a path counts."""
    none = VisibilityOverrides()
    opened = none.with_override("a.b", FULL)
    assert none.get("a.b") is None
    assert opened.get("a.b") is FULL
    assert opened.with_override("a.b", SUMMARY).get("a.b") is SUMMARY
    assert opened.get("a") is None


@given(settings)
def test_set_visibility_overrides_fold_into_one_value(changes: list[Any]) -> None:
    """S2-8: through the reducer that the class declares, from what the ledger holds."""
    declared = Declarations()
    declared.register_class(VisibilityOverrides)
    events = [
        SliceEventApplied(
            slice="VisibilityOverrides",
            event_type="SetVisibilityOverride",
            payload=to_plain(SetVisibilityOverride(path=path, visibility=visibility)),
        )
        for path, visibility in changes
    ]
    state = fold(records(events), SessionSlices(declared))
    values = state.all("VisibilityOverrides")
    assert values == ((VisibilityOverrides(dict(changes)),) if changes else ())
    assert state.unapplied == 0


@given(settings)
def test_overrides_come_back_from_a_snapshot(changes: list[Any]) -> None:
    """As the same value."""
    value = VisibilityOverrides(dict(changes))
    assert msgspec.convert(to_plain(value), VisibilityOverrides) == value


@pytest.mark.parametrize(
    ("path", "visibility"), [("", FULL), (("a", "b"), FULL), ("a", "full"), ("a", None)]
)
def test_an_override_names_a_path_and_a_visibility(path: Any, visibility: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInputError):
        SetVisibilityOverride(path=path, visibility=visibility)


def test_an_expansion_says_what_is_asked_for() -> None:
    """S2-8: path by path, for whoever evaluates again."""
    error = VisibilityExpansionRequired({"a": FULL, "b.c": FULL}, reason="to answer")
    assert error.requested_overrides == {"a": FULL, "b.c": FULL}
    assert error.section_keys == ("a", "b.c")
    assert error.reason == "to answer"
    assert "b.c" in str(error)
    assert isinstance(error, TurnledgerError)
