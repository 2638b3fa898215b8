"""Search: events that have a text, newest first, in pages, over one run or all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.samples import note
from tests.unit.projections.given import CODEC, said, starts
from tests.unit.projections.random_runs import small_world
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Event,
    InvalidInputError,
    Ledger,
    PromptOverrideSet,
    ResourceSnapshotted,
    RunNotFoundError,
    RunStarted,
    ToolCallStarted,
    blob_name,
    new_run_id,
    prompt_stream_id,
)
from turnledger.ledger.runs.record import Columns
from turnledger.projections import Found, search, search_all
from turnledger.projections.records.text_match import TextMatch

# The names of a custom event's fields.
FIELDS = {"kind", "data"}


class Ticking:
    """A clock that is a second later each time."""

    def __init__(self) -> None:
        self._seconds, self._ids = count(1), count(1)

    def micros(self) -> int:
        return next(self._seconds) * 1_000_000

    def new_id(self) -> str:
        return str(UUID(int=next(self._ids)))


def record(ledger: Ledger, *events: Event) -> UUID:
    run = new_run_id()
    ledger.append(run, [RunStarted(), *events], NEW)
    return run


def custom(data: Any) -> CustomEvent:
    return CustomEvent(kind="acme.note", data=data)


def versions(found: Found) -> list[int]:
    return [hit.version for hit in found.hits]


def found_in(text: str, data: str) -> bool:
    return TextMatch(text).excerpt("custom", data) is not None


# --- what is text --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('say "hi"', True),
        ('"hi"\nthen', True),
        ("back\\slash", True),
        ("a/b", True),
        ("Müller", True),
        ("mÜLLER", True),
        ("STRASSE", True),
        ("😀", True),
        ("4711", True),
        ("-1.50", True),
        ("src/report.txt", True),
        ("true", False),
        ("null", False),
        ("u00fc", False),
        ("nthen", False),
        ("hi\\n", False),
        ("ud83d", False),
        ("content", False),
        ('":"', False),
    ],
)
def test_text_is_found_and_escapes_are_not(text: str, is_found: bool) -> None:
    """As the ledger writes JSON, and as others may: with \\u escapes, or with an escaped slash."""
    values = {
        "content": 'say "hi"\nthen back\\slash, a/b',
        "names": ["Müller", "Straße", "😀", True, None],
        "numbers": [4711, -1.5],
        "files": {"src/report.txt": "x"},
    }
    plain = json.dumps(values, ensure_ascii=False).replace("-1.5", "-1.50")
    escaped = json.dumps(values).replace("-1.5", "-1.50").replace("/", "\\/")
    every = "".join(f"\\u{ord(c):04x}" if c.isalpha() and c < "\x7f" else c for c in "say, then")
    assert [found_in(text, data) for data in (plain, escaped)] == [is_found, is_found]
    assert found_in("SAY, THEN", f'["{every}"]')
    assert found_in("a/b", r'["a\/b"]')


def test_the_json_of_a_tools_arguments_is_searched_by_its_values() -> None:
    """Its text is JSON within JSON, as models write it: with escapes of its own."""
    arguments = json.dumps({"customer": "Müller", "note": 'a "b"\nc'})
    _, data = CODEC.encode(
        ToolCallStarted(evaluation_id="e", call_id="c", name="n", arguments=arguments)
    )
    assert "\\\\u00fc" in data.decode()
    for text in ("müller", '"b"\nc', "customer", '"note": '):
        assert found_in(text, data.decode()), text
    assert not found_in("no such", data.decode())
    # Text that only looks like JSON, or is nested too deep to decode, is searched as text.
    assert found_in("[oops", '["[oops"]')
    assert found_in("x", json.dumps("[" * 100_000 + "x"))


def test_keys_of_maps_are_searched_and_names_of_fields_are_not(ledger: Ledger) -> None:
    """The path of a file is found; the word message is not in every message."""
    run = record(ledger)
    kept = ResourceSnapshotted(resource="files", files={"notes/Plan.md": blob_name(b"plan")})
    ledger.append(run, [kept, said("user", "Hi", 1)], ANY, blobs=[b"plan"])
    assert versions(search(ledger, run, "plan.md")) == [2]
    assert versions(search(ledger, run, "content")) == []
    assert versions(search(ledger, run, "message")) == [3]
    assert search(ledger, run, "MESSAGE.app").hits[0].excerpt == "message.appended"


texts = st.text(st.sampled_from('ab"\\/\nüÜßs\u017f\u212a\u0130k😀u0{}[],:1'), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | texts | st.floats(-2, 2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
nested = st.one_of(
    values, values.map(json.dumps), values.map(lambda value: {"inner": json.dumps(value)})
)


def walked(value: Any) -> Iterator[str]:
    """The texts of a JSON value, by another decoder: keys but for field names, and no escapes."""
    if isinstance(value, str):
        yield value
        if value.lstrip().startswith(("{", "[")):
            try:
                inner = json.loads(value, parse_float=str)
            except (ValueError, RecursionError):
                return
            yield from walked(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in FIELDS:
                yield from walked(key)
            yield from walked(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walked(inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


@settings(max_examples=200)
@given(payloads=st.lists(nested, min_size=1, max_size=6), text=texts, fork=st.booleans())
def test_hits_are_the_events_whose_values_have_the_text(
    payloads: list[Any], text: str, fork: bool
) -> None:
    """Exactly those, in pages of any size, in a run, in its fork and over all runs."""
    text = text or "a"
    with Ledger.open("memory://", redactor=None) as ledger:
        run = record(ledger, *map(custom, payloads))
        if fork:
            run = ledger.fork(run, ledger.head(run))
            ledger.append(run, [custom(payload) for payload in payloads[:2]], ANY)
        expected = [
            one.version
            for one in ledger.read(run, backwards=True)
            if any(
                text.casefold() in found.casefold()
                for found in (one.tag, *walked(json.loads(one.data, parse_float=str)))
            )
        ]
        assert versions(search(ledger, run, text)) == expected
        for limit in (1, 2):
            pages, before = list[int](), None
            while True:
                page = search(ledger, run, text, before=before, limit=limit)
                assert len(page.hits) <= limit
                pages += versions(page)
                if (before := page.next) is None:
                    break
            assert pages == expected
        assert versions(search_all(ledger, text)) == expected


def leaves_of(value: Any) -> list[str]:
    """The values that are text, without keys."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves_of(inner)]
    return [value] if isinstance(value, str) and value else []


@settings(max_examples=40)
@given(events=st.lists(small_world, min_size=1, max_size=12), data=st.data())
def test_every_text_of_an_event_is_found(events: list[Event], data: st.DataObject) -> None:
    """Whatever the event, and it is in the excerpt."""
    with Ledger.open("memory://", redactor=None) as ledger:
        run = record(ledger, *events)
        one = data.draw(st.sampled_from(list(ledger.read(run))))
        text = data.draw(st.sampled_from([one.tag, *leaves_of(json.loads(one.data))]))
        hits = {hit.version: hit.excerpt for hit in search(ledger, run, text).hits}
        assert text in hits[one.version]


# --- excerpts ------------------------------------------------------------------------


def test_an_excerpt_is_one_line_around_the_hit() -> None:
    """Cut on both sides with an ellipsis, without line breaks and control characters."""
    long = "a" * 100 + "\nleft\t needle\x1b[31m right\n" + "z" * 100
    found = TextMatch("NEEDLE").excerpt("custom", json.dumps({"data": long}))
    assert found is not None
    assert found.startswith("…aaa")
    assert "left needle [31m right" in found
    assert found.endswith("zzz…")
    assert TextMatch("i").excerpt("custom", '["hi"]') == "hi"
    huge = TextMatch("x" * 5000).excerpt("custom", json.dumps(["x" * 6000]))
    assert huge is not None
    assert len(huge) < 300


def test_an_excerpt_is_right_where_folding_makes_text_longer() -> None:
    """The sharp s is two letters when case does not matter."""
    text = "ß" * 100 + " Straße 7"
    found = TextMatch("STRASSE").excerpt("custom", json.dumps([text]))
    assert found == "…" + "ß" * 39 + " Straße 7"
    assert TextMatch("s").excerpt("-", '["ß"]') == "ß"


# --- pages, limits, damage -----------------------------------------------------------


def test_hits_name_run_version_position_and_tag(ledger: Ledger) -> None:
    """In a fork's shared part the run is the one that holds the event."""
    run = record(ledger, custom("needle"))
    child = ledger.fork(run, 2)
    ledger.append(child, [custom("Needle")], ANY)
    late, early = search(ledger, child, "needle").hits
    assert (late.run_id, late.version, late.tag) == (str(child), 4, "custom")
    assert (early.run_id, early.version, early.excerpt) == (str(run), 2, "needle")
    held = ledger.record(run, 2)
    assert (early.position, early.recorded_at) == (held.position, held.recorded_at)
    assert msgspec.to_builtins(late)["type"] == "custom"
    assert search_all(ledger, "needle").hits == (late, early)


def test_all_runs_are_searched_across_pages_of_the_store(ledger: Ledger) -> None:
    """Prompt streams too; `next` is the position that was searched up to."""
    override = PromptOverrideSet(prompt_ns="ns", prompt_key="key", path="tone", body="the needle")
    ledger.append(prompt_stream_id("ns", "key"), override, NEW)
    for number in range(5):
        record(ledger, *(custom(f"hay {number}.{turn}") for turn in range(60)))
    found = search_all(ledger, "needle")
    assert [hit.tag for hit in found.hits] == ["prompt.override_set"]
    assert found.next is None
    first = search_all(ledger, "hay", limit=7)
    assert first.next == first.hits[-1].position
    rest = search_all(ledger, "hay", before=first.next, limit=1000)
    assert len(first.hits) + len(rest.hits) == 300
    places = [hit.position for hit in first.hits + rest.hits]
    assert places == sorted(places, reverse=True)


def test_a_search_ends_when_its_time_is_up() -> None:
    """It says how far it came, goes on from there, and searches one event at least."""
    with Ledger.open("memory://", clock=Ticking()) as ledger:
        run = record(ledger, *(custom("needle" if n == 3 else "hay") for n in range(30)))
        pages = [search_all(ledger, "needle", seconds=5)]
        while pages[-1].next is not None:
            pages.append(search_all(ledger, "needle", before=pages[-1].next, seconds=5))
        assert [versions(page) for page in pages if page.hits] == [[5]]
        assert [page.next for page in pages] == [27, 22, 17, 12, 7, 2, None]
        assert search(ledger, run, "needle", seconds=0) == Found((), 31)
        assert search(ledger, run, "needle", before=2, seconds=0) == Found((), None)


def test_damaged_records_are_named_and_the_others_searched(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not JSON does not hide what the others have."""
    run = record(ledger, custom("needle"), custom("needle"), custom("needle"))
    rows = ledger.store.rows_before(2**63 - 1, 9)
    broken: list[Columns] = [(*rows[1][:7], '{"needle')]
    blob: Any = (*rows[2][:7], b"\xff")
    pages = iter([[rows[0], *broken, blob, rows[3]], []])
    monkeypatch.setattr(ledger.store, "rows_before", lambda *_: next(pages))
    found = search_all(ledger, "needle")
    assert versions(found) == [4]
    assert [(one.run_id, one.version) for one in found.unreadable] == [(str(run), 3), (str(run), 2)]


def test_wrong_arguments_are_errors(ledger: Ledger) -> None:
    """An empty text, no room for a hit, a run that does not exist."""
    run = record(ledger, note(), starts())
    for call in (
        lambda: search(ledger, run, ""),
        lambda: search(ledger, run, "a", limit=0),
        lambda: search_all(ledger, "a", limit=-1),
        lambda: search_all(ledger, "a", seconds=float("nan")),
    ):
        with pytest.raises(InvalidInputError):
            call()
    with pytest.raises(RunNotFoundError):
        search(ledger, new_run_id(), "a")
    assert search(ledger, run, "a", before=0) == search(ledger, run, "a", before=1)
