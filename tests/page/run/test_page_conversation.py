"""The conversation at a version: calls with results, what is new, long runs, texts, media."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Locator, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo, LongRun
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import (
    NEW,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    Ledger,
    MediaContent,
    MessageAppended,
    RunStarted,
    RunWaiting,
    TextContent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
    blob_name,
    new_run_id,
)

PIXEL = b"not an image at all"
MARKDOWN = """# Head
Some **bold** text, `code` and [a link](https://example.org/a).

- [bad](javascript:alert(1))
- ![seen](https://example.org/a.png)

<script>alert(1)</script>

| a | b |
| - | - |
| 1 | 2 |
"""
LONG_TEXT = "".join(f"line {number} of a long text\n" for number in range(3000))
TURNS = 60
WIDE = 90
# Of the many turns, every how many its call fails.
FAILS = 5


class _Talk:
    """Events of one evaluation."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sequence = count()

    def said(self, role: Any, content: str = "", **more: Any) -> MessageAppended:
        number = next(self._sequence)
        return MessageAppended(
            message=InnerMessage(
                role=role, content=content, evaluation_id=self._name, sequence=number, **more
            )
        )

    def started(self, call: str, name: str) -> Event:
        return ToolCallStarted(evaluation_id=self._name, call_id=call, name=name)

    def completed(self, call: str, name: str) -> Event:
        return ToolCallCompleted(evaluation_id=self._name, call_id=call, name=name)

    def failed(self, call: str, name: str) -> Event:
        return ToolCallFailed(
            evaluation_id=self._name,
            call_id=call,
            name=name,
            error_type="TimeoutError",
            error_message="the bank did not answer " + "at all " * 500,
        )

    def begun(self) -> Event:
        return EvaluationStarted(
            evaluation_id=self._name, prompt_ns="a", prompt_key="b", prompt_digest="c"
        )


@dataclass(frozen=True)
class Talks:
    """A served ledger with one run of all kinds of blocks, and one of many turns."""

    served: Served
    kinds: UUID
    # Versions of the event that answered the second call, and of the one that amended the first.
    answered: int
    amended: int
    many: UUID
    # More calls at once than are loaded with a version; the first is in doubt.
    wide: UUID


def _kinds() -> Iterator[Event]:
    old, talk = _Talk("old"), _Talk("new")
    yield RunStarted(request_type="Test")
    yield old.begun()
    yield old.said("user", "set aside")
    yield EvaluationSuperseded(evaluation_id="old", reason="again")
    yield talk.begun()
    yield talk.said("system", "Be brief. " * 100)
    yield talk.said("user", MARKDOWN)
    media = (
        TextContent("see this"),
        MediaContent("image", blob=blob_name(PIXEL), mime="image/png"),
        MediaContent("image", url="https://example.org/b.png"),
        MediaContent("document", url="javascript:alert(2)"),
    )
    yield talk.said("user", parts=media)
    names = {"call_a": "first", "call_b": "second", "call_c": "third"}
    calls = tuple(ToolCallRecord(call, name, "{}") for call, name in names.items())
    yield talk.said("assistant", "three at once", tool_calls=calls)
    for call, name in names.items():
        yield talk.started(call, name)
    yield talk.said("tool", "gave b", tool_call_id="call_b")
    yield talk.completed("call_b", "second")
    first = talk.said("tool", "gave a", tool_call_id="call_a")
    yield first
    yield talk.completed("call_a", "first")
    yield talk.failed("call_c", "third")
    yield talk.said("tool", "broken", tool_call_id="call_c", is_error=True)
    yield ToolMessageAmended(message_id=first.message.message_id, content="gave less")
    yield talk.said("assistant", LONG_TEXT)


def _many() -> Iterator[Event]:
    talk, results = _Talk("many"), list[UUID]()
    yield RunStarted(request_type="Test")
    yield talk.begun()
    for turn in range(TURNS):
        yield talk.said("user", f"question {turn}.")
        call = ToolCallRecord("again", "look", f'{{"turn": {turn}}}')
        yield talk.said("assistant", f"answer {turn}.", turn=turn, tool_calls=(call,))
        yield talk.started("again", "look")
        said = talk.said("tool", f"seen {turn}.", tool_call_id="again", turn=turn)
        results.append(said.message.message_id)
        yield said
        yield (talk.failed if turn % FAILS == 0 else talk.completed)("again", "look")
    yield ToolMessageAmended(message_id=results[0], content="seen 0. No more of it.")


def _wide() -> Iterator[Event]:
    talk = _Talk("wide")
    calls = tuple(ToolCallRecord(f"call_{place}", "send", "{}") for place in range(WIDE))
    yield RunStarted(request_type="Test")
    yield talk.begun()
    yield talk.said("user", "send them all")
    yield talk.said("assistant", tool_calls=calls)
    yield talk.started("call_0", "send")
    yield ToolCallInDoubt(evaluation_id="wide", call_id="call_0", name="send", reason="lost")
    yield RunWaiting(reason="lost", call_ids=("call_0",))


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talks]:
    """A ledger of runs whose conversations have everything in them."""
    db = tmp_path_factory.mktemp("talks") / "runs.db"
    kinds, many, wide = (new_run_id() for _ in range(3))
    events = list(_kinds())
    with Ledger.open(db) as ledger:
        ledger.append(kinds, events, NEW, blobs=[PIXEL])
        ledger.append(many, list(_many()), NEW)
        ledger.append(wide, list(_wide()), NEW)
    answered = next(place for place, one in enumerate(events, 1) if "gave b" in str(one))
    amended = next(place for place, one in enumerate(events, 1) if "gave less" in str(one))
    with Served(db) as served:
        yield Talks(served, kinds, answered, amended, many, wide)


def turns(visit: Visit) -> Locator:
    return visit.page.get_by_role("region", name="Turns")


def call(visit: Visit, call_id: str) -> Locator:
    return turns(visit).locator(f"article.call[data-call={call_id}]")


def test_a_call_says_what_became_of_it(visit: Visit, demo: Demo) -> None:
    """Its result, where it was in doubt, and who decided where; each version leads there."""
    visit.open(f"/runs/{demo.runs.recovered}?tab=event")
    pay = call(visit, "call_2")
    expect(pay.locator(".standing")).to_contain_text("completed")
    expect(pay.locator(".doubted")).to_contain_text("In doubt at event 20")
    expect(pay.locator(".decided")).to_contain_text("Decided at event 22 by ann: it happened")
    expect(pay.locator(".result")).to_contain_text('{"paid":120}')
    pay.locator(".doubted").get_by_role("link", name="20").click()
    visit.expect_version(20)
    assert visit.address == f"/runs/{demo.runs.recovered}?at=20&tab=event"
    expect(pay.locator(".standing")).to_have_text("in doubt")
    expect(pay.get_by_text("Decide at the end of the run")).to_be_visible()
    expect(pay.get_by_role("radio")).to_have_count(0)
    visit.page.go_back()
    visit.expect_version(41)


def test_what_the_event_added_is_marked_and_in_sight(visit: Visit, demo: Demo) -> None:
    """The turn, the result or the call that the event is about, and nothing else."""
    visit.open(f"/runs/{demo.runs.undisturbed}?at=7")
    visit.expect_version(7)
    new = turns(visit).locator(".new")
    expect(new).to_have_count(0)
    visit.press("j")
    expect(new).to_have_count(1)
    expect(new).to_contain_text("Let me look.")
    expect(new).to_contain_text("added by this event")
    visit.press("j", "j")
    expect(call(visit, "call_1")).to_have_class(re.compile("call-started.*new"))
    visit.press("j", "j")
    expect(turns(visit).locator(".result.new")).to_contain_text("Found it.")
    visit.press("End")
    visit.press(*"kkkkk")
    expect(turns(visit).locator(".turn.new")).to_contain_text("Invoice 17 is paid: 120.")
    expect(turns(visit).locator(".turn.new")).to_be_in_viewport(ratio=1)


def test_the_system_prompt_is_folded(browse: Browse, talks: Talks) -> None:
    """One line until it is opened."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.kinds}")
    system = turns(visit).locator("details.system")
    folded = system.bounding_box()
    assert folded is not None
    assert folded["height"] < 40
    system.locator("summary").click()
    expect(system.locator("> .text")).to_have_text("Be brief. " * 100)


def test_parallel_calls_have_their_own_results(browse: Browse, talks: Talks) -> None:
    """In whatever order they came; a failure says why; what was amended stands with what was."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.kinds}?at={talks.answered}")
    expect(call(visit, "call_b").locator(".result")).to_contain_text("gave b")
    expect(call(visit, "call_a").locator(".result")).to_have_count(0)
    expect(call(visit, "call_a").locator(".standing")).to_have_text("running")
    visit.open(f"/runs/{talks.kinds}?at={talks.amended}")
    result = call(visit, "call_a").locator(".result")
    expect(result).to_contain_text("amended")
    expect(result.locator(".text")).to_have_text(["gave less", "gave a"])
    expect(call(visit, "call_c")).to_contain_text("TimeoutError: the bank did not answer")
    expect(call(visit, "call_c").locator(".error")).to_contain_text("of 3,524")
    expect(call(visit, "call_c").locator(".standing")).to_contain_text("failed")


def test_a_call_in_doubt_among_very_many_can_be_decided(browse: Browse, talks: Talks) -> None:
    """Its state is loaded though more calls came after it than a version is loaded with."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.wide}")
    expect(call(visit, "call_0").get_by_role("radio")).to_have_count(3)
    expect(turns(visit).locator("article.call")).to_have_count(20)
    turns(visit).get_by_role("button", name="Show them").click()
    expect(call(visit, "call_20").locator(".standing")).to_have_text("not started")
    assert visit.nodes() < 2000


def test_the_conversation_opens_at_its_end(visit: Visit, demo: Demo) -> None:
    """Also after cards above have grown by what is loaded later."""
    visit.open(f"/runs/{demo.runs.recovered}")
    expect(call(visit, "call_2").locator(".decided")).to_contain_text("at event 22")
    last = turns(visit).locator(".turn").last
    expect(last).to_contain_text("Invoice 17 is paid")
    expect(last).to_be_in_viewport(ratio=1)


def test_a_superseded_evaluation_is_not_in_the_conversation(browse: Browse, talks: Talks) -> None:
    """The event that sets it aside says so, and the next one begins another conversation."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.kinds}?at=3")
    expect(turns(visit)).to_contain_text("set aside")
    visit.press("j")
    expect(turns(visit).locator(".notice")).to_contain_text("set an evaluation aside")
    visit.press("j", "j", "j")
    visit.expect_version(7)
    expect(turns(visit)).to_contain_text("Some **bold** text")
    expect(turns(visit)).not_to_contain_text("set aside")


def test_markdown_is_off_until_it_is_chosen(browse: Browse, talks: Talks) -> None:
    """It is remembered; nothing in it is markup, is loaded, or is a link that runs something."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.kinds}?at=8")
    shown = turns(visit).locator(".turn-user").first
    expect(shown).to_contain_text("Some **bold** text")
    visit.press("m")
    expect(shown.locator("strong")).to_have_text("bold")
    expect(shown.locator("td")).to_have_text(["1", "2"])
    expect(shown).to_contain_text("<script>alert(1)</script>")
    expect(shown).to_contain_text("![seen](https://example.org/a.png)")
    expect(shown).to_contain_text("(javascript:alert(1))")
    assert shown.locator("script, img").count() == 0
    links = shown.locator(".markdown a")
    expect(links).to_have_count(1)
    expect(links).to_have_attribute("href", "https://example.org/a")
    expect(links).to_have_attribute("rel", "noreferrer noopener")
    visit.open(f"/runs/{talks.kinds}?at=8")
    expect(shown.locator("strong")).to_have_text("bold")
    visit.page.get_by_role("button", name="Markdown").click()
    expect(shown).to_contain_text("Some **bold** text")


def test_media_are_links(browse: Browse, talks: Talks) -> None:
    """Bytes of the ledger are downloaded, other addresses are links if they are of the web."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.kinds}?at=8")
    media = turns(visit).locator(".media")
    expect(media).to_have_count(3)
    with visit.page.expect_download() as download:
        media.first.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == PIXEL
    assert download.value.suggested_filename == blob_name(PIXEL).removeprefix("sha256:")
    expect(media.nth(1).get_by_role("link")).to_have_attribute("href", "https://example.org/b.png")
    expect(media.nth(2)).to_contain_text("javascript:alert(2)")
    expect(media.nth(2).get_by_role("link")).to_have_count(0)


def test_a_long_text_comes_in_slices(browse: Browse, talks: Talks) -> None:
    """It says how long it is, and shows the rest slice by slice, back and forth."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.kinds}")
    last = turns(visit).locator(".turn").last
    slices = last.locator(".slices")
    expect(slices).to_contain_text(f"characters 1 to 2,000 of {len(LONG_TEXT):,}")
    slices.get_by_role("button", name="Show more").click()
    expect(slices).to_contain_text("characters 2,001 to 22,000 of")
    start = last.locator(".block > .text").inner_text().partition("\n")[0]
    assert LONG_TEXT[2000:].startswith(start)
    slices.get_by_role("button", name="Show what is before").click()
    expect(last.locator(".block > .text")).to_contain_text("line 0 of a long text")


def test_earlier_turns_come_in_windows(browse: Browse, talks: Talks) -> None:
    """Each call with the result of its own turn, though ids repeat; the page stays small."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.many}")
    expect(turns(visit).locator(".turn").last).to_contain_text(f"seen {TURNS - 1}.")
    earlier = turns(visit).get_by_role("button", name="earlier turn")
    seen, most = set[int](), 0
    while True:
        visit.settle()
        pairs = turns(visit).locator("article.call").all_inner_texts()
        for pair in pairs:
            asked, given = re.search(r'"turn": (\d+)', pair), re.search(r"seen (\d+)\.", pair)
            assert asked is not None
            # The result of the last one may be in the next window.
            assert given is None or given[1] == asked[1]
            assert ("failed" if int(asked[1]) % FAILS == 0 else "completed") in pair
            seen.add(int(asked[1]))
        most = max(most, visit.nodes())
        if not earlier.count():
            break
        earlier.click()
    assert seen == set(range(TURNS))
    assert most < 2000
    expect(turns(visit)).to_contain_text("question 0.")
    turns(visit).get_by_role("button", name="later turn").click()
    expect(turns(visit)).not_to_contain_text("question 0.")
    turns(visit).get_by_role("button", name="To the last turn").click()
    expect(turns(visit).locator(".turn").last).to_contain_text(f"seen {TURNS - 1}.")


def test_a_change_far_up_is_shown_when_it_is_wanted(browse: Browse, talks: Talks) -> None:
    """The event says which turn it changed; the turns there come with what it changed marked."""
    visit = browse(talks.served)
    visit.open(f"/runs/{talks.many}")
    notice = turns(visit).locator(".notice")
    expect(notice).to_contain_text("This event changed turn 3.")
    notice.get_by_role("button", name="Show it").click()
    expect(turns(visit).locator(".result.new")).to_contain_text("No more of it.")


def test_a_step_past_a_doubt_in_a_long_run_asks_for_little(
    browse: Browse, long_run: LongRun
) -> None:
    """Turns, calls and changes of the version; where a call was in doubt is asked for once."""
    visit = browse(long_run.served)
    visit.open(f"/runs/{long_run.run}?at=50000")
    visit.expect_version(50000)
    visit.press("d")
    expect(turns(visit).locator(".call-in_doubt .known")).to_contain_text("In doubt at event")
    visit.settle()
    start = visit.version()
    for version in range(start + 1, start + 6):
        visit.count_from_here()
        visit.press("j")
        visit.expect_version(version)
        visit.settle()
        assert len(visit.requests) <= 4
    assert visit.nodes() < 2000
