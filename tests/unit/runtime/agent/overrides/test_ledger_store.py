"""LedgerOverridesStore: overrides are versions of a stream, tags name them, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnledger.ledger import (
    ConcurrentAppendError,
    InvalidInputError,
    Ledger,
    PromptOverrideSet,
    prompt_stream_id,
)
from turnledger.projections import state_at
from turnledger.runtime import MarkdownSection, Prompt, PromptTemplate, Tool
from turnledger.runtime.agent.overrides import LedgerOverridesStore

NS, KEY = "acme/support", "answer"


def look(*, context: object) -> str:
    return "seen"


def template(tone: str = "Be polite.", describes: str = "Looks it up.") -> PromptTemplate[str]:
    tool = Tool[None, str](name="look", description=describes, handler=look)
    inner = MarkdownSection(title="Limits", key="limits", template="No jokes.")
    section = MarkdownSection(
        title="Tone", key="tone", template=tone, tools=[tool], children=[inner]
    )
    return PromptTemplate[str](ns=NS, key=KEY, sections=[section])


PROMPT = template()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as ledger:
        yield ledger


@pytest.fixture
def store(ledger: Ledger) -> LedgerOverridesStore:
    return LedgerOverridesStore(ledger)


def texts(store: LedgerOverridesStore, tag: str = "latest") -> dict[str, str]:
    return dict(store.section_overrides(NS, KEY, tag) or {})


def test_overrides_replace_sections_and_tool_descriptions(store: LedgerOverridesStore) -> None:
    """The rendered prompt has them, and says which and from where."""
    store.set_section_override(PROMPT, tag="latest", path="tone", body="Be brief.")
    store.set_section_override(PROMPT, tag="latest", path="tone.limits", body="Jokes are fine.")
    store.set_section_override(Prompt(PROMPT), tag="latest", path="tool:look", body="Looks twice.")
    rendered = Prompt(PROMPT).render(overrides_store=store)
    assert "Be brief." in rendered.text
    assert "Jokes are fine." in rendered.text
    assert [tool.description for tool in rendered.tools] == ["Looks twice."]
    assert PROMPT.sections[0].tools[0].description == "Looks it up."
    used = rendered.overrides
    assert used is not None
    assert (used.store, used.tag, used.version) == ("ledger", "latest", 3)
    assert used.paths == ("tone", "tone.limits", "tool:look")
    assert [one.overridden for one in rendered.sections] == [True, True]


def test_an_override_of_a_text_that_changed_since_is_not_applied(
    store: LedgerOverridesStore,
) -> None:
    """It is named as stale; one of a text that is gone, as unused."""
    store.seed(PROMPT)
    now = Prompt(template("Be kind.", "Looks anywhere.")).render(overrides_store=store)
    assert "Be kind." in now.text
    assert [tool.description for tool in now.tools] == ["Looks anywhere."]
    assert now.stale_overrides == ("tone", "tool:look")
    assert now.overrides is not None
    assert now.overrides.paths == ("tone.limits",)
    other = PromptTemplate[str](ns=NS, key=KEY, sections=[MarkdownSection(
        title="T", key="task", template="Answer.")])  # fmt: skip
    assert Prompt(other).render(overrides_store=store).unused_overrides == (
        "tone",
        "tone.limits",
        "tool:look",
    )


def test_an_override_without_a_digest_replaces_any_text(
    ledger: Ledger, store: LedgerOverridesStore
) -> None:
    """As one that is set by a person who does not have the program."""
    made = PromptOverrideSet(prompt_ns=NS, prompt_key=KEY, path="tone", body="Hm.")
    ledger.append(prompt_stream_id(NS, KEY), made, 0)
    assert "Hm." in Prompt(template("Be odd.")).render(overrides_store=store).text


def test_a_tag_names_a_version_and_latest_the_last(store: LedgerOverridesStore) -> None:
    """Texts that are set later are not the tag's, until it is moved; it can be moved back."""
    first = store.set_section_override(PROMPT, tag="stable", path="tone", body="One.")
    second = store.set_section_override(PROMPT, tag="latest", path="tone", body="Two.")
    assert (texts(store), texts(store, "stable")) == ({"tone": "Two."}, {"tone": "One."})
    store.move_tag(NS, KEY, tag="stable", version=second)
    assert texts(store, "stable") == {"tone": "Two."}
    store.move_tag(NS, KEY, tag="stable", version=first)
    assert texts(store, "stable") == {"tone": "One."}
    assert store.section_overrides(NS, KEY, "unheard-of") is None
    assert store.section_overrides(NS, "another", "latest") is None
    assert store.at_version(NS, KEY, 99) is None


def test_a_tag_that_is_behind_is_not_changed_in_passing(store: LedgerOverridesStore) -> None:
    """Its next version would have the texts of others, too: the error says what to do."""
    store.set_section_override(PROMPT, tag="stable", path="tone", body="One.")
    store.set_section_override(PROMPT, tag="latest", path="tool:look", body="Looks twice.")
    with pytest.raises(InvalidInputError, match="move_tag"):
        store.set_section_override(PROMPT, tag="stable", path="tone", body="Three.")
    assert texts(store, "stable") == {"tone": "One."}


def test_deleting_brings_the_authored_text_back(store: LedgerOverridesStore) -> None:
    """Of one path or of all; what was set stays on record."""
    store.seed(PROMPT)
    store.delete(PROMPT, path="tone")
    assert set(texts(store)) == {"tone.limits", "tool:look"}
    store.delete(PROMPT)
    assert texts(store) == {}
    assert dict(store.at_version(NS, KEY, 3) or {}) == {
        "tone": "Be polite.",
        "tone.limits": "No jokes.",
        "tool:look": "Looks it up.",
    }


def test_seeding_again_keeps_what_was_edited(ledger: Ledger, store: LedgerOverridesStore) -> None:
    """It adds the texts that are missing, and nothing if there are none."""
    store.set_section_override(PROMPT, path="tone", body="Be brief.", note="n", set_by="ann")
    assert store.seed(PROMPT) == 3
    assert store.seed(PROMPT) == 3
    assert texts(store)["tone"] == "Be brief."
    kept = state_at(ledger, prompt_stream_id(NS, KEY)).prompt.overrides["tone"]
    assert (kept.note, kept.set_by) == ("n", "ann")


@pytest.mark.parametrize(
    ("path", "body"),
    [("nowhere", "x"), ("tool:none", "x"), ("tone", "${unknown}"), ("tool:look", " "), ("tone", 1)],
)
def test_an_override_that_could_not_be_rendered_is_refused(
    ledger: Ledger, store: LedgerOverridesStore, path: str, body: str
) -> None:
    """Before it is written: no run can be broken by it."""
    with pytest.raises(InvalidInputError):
        store.set_section_override(PROMPT, tag="latest", path=path, body=body)
    assert list(ledger.tail()) == []


@pytest.mark.parametrize("tag", ["latest", "", "a/b", "../x"])
def test_a_tag_that_is_no_name_is_refused(store: LedgerOverridesStore, tag: str) -> None:
    """`latest` is always the last version."""
    store.seed(PROMPT)
    with pytest.raises(InvalidInputError, match="tag"):
        store.move_tag(NS, KEY, tag=tag, version=1)


def test_of_two_changes_at_once_the_second_is_a_conflict(
    ledger: Ledger, store: LedgerOverridesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has read the version before the first one's."""
    store.set_section_override(PROMPT, path="tone", body="One.")
    real = ledger.append

    def slow(*args: object, **more: object) -> object:
        monkeypatch.undo()
        store.set_section_override(PROMPT, path="tone", body="Two.")
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "append", slow)
    with pytest.raises(ConcurrentAppendError):
        store.set_section_override(PROMPT, path="tone", body="Three.")
    assert texts(store) == {"tone": "Two."}
