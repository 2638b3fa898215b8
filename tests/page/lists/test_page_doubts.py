"""Doubts: a person decides on the page what became of a call, or whether it may run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import (
    NEW,
    ApprovalRequested,
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    RunStarted,
    RunWaiting,
    ToolCallRecord,
    new_run_id,
)

VALUE = "The value that it gave, as JSON"
HAPPENED, NOT, AGAIN = "It happened, with this value", "It did not happen", "Run it again"


def card(page: Page, call: str = "call_2") -> Locator:
    return page.get_by_role("region", name=call)


def record(page: Page) -> Locator:
    return page.get_by_role("button", name="Record the decision")


def events(db: Path, run: UUID, kind: str) -> list[dict[str, object]]:
    with Ledger.open(db) as ledger:
        return [json.loads(one.data) for one in ledger.read(run) if one.tag == kind]


@pytest.mark.parametrize("screen", ["doubts", "run"])
def test_a_decision_lets_the_killed_agent_go_on(
    own_demo: Demo, browse: Browse, screen: str
) -> None:
    """What is appended is shown before; the agent goes on by recover, and has paid once."""
    run, stage = own_demo.runs.waiting, own_demo.stage("waiting")
    visit = browse(own_demo.served)
    page = visit.open("/doubts" if screen == "doubts" else f"/runs/{run}")
    pay = card(page)
    expect(pay).to_contain_text("which died")
    expect(pay).to_contain_text("No worker has the run")
    expect(pay).to_contain_text("it was started, and nothing was heard of it since")
    pay.get_by_role("radio", name=HAPPENED).check()
    pay.get_by_label(VALUE).fill('{"paid": ')
    expect(pay).to_contain_text("Not JSON")
    expect(record(page)).to_be_disabled()
    pay.get_by_label(VALUE).fill('{"paid": 120, "receipt": 12345678901234567890}')
    pay.get_by_label("Who decides").fill("ann")
    shown = json.loads(pay.locator(".appended pre").inner_text())
    record(page).click()
    expect(pay.get_by_role("status")).to_contain_text("The decision is recorded at event 22")
    expect(pay).to_contain_text(f"turnledger recover {run} --app")
    with Ledger.open(own_demo.db) as ledger:
        (decided,) = ledger.read(run, after=21)
    assert shown == {
        "type": decided.tag,
        "event_id": str(decided.event_id),
        "data": json.loads(decided.data),
    }
    assert shown["data"]["value"] == {"paid": 120, "receipt": 12345678901234567890}
    code, said = stage.turnledger("recover", str(run), "--app", "payments:agent")
    assert (code, stage.payments()) == (0, ["call_2 120"]), said
    if screen == "run":
        expect(page.locator(".run-head .status")).to_have_text("completed")
        expect(page.locator("[data-call=call_2] .decided")).to_contain_text("by ann: it happened")
    else:
        expect(page.get_by_text("No run waits for a decision.")).to_be_visible()


def test_of_two_that_decide_at_once_one_is_recorded(own_demo: Demo, browse: Browse) -> None:
    """The other is shown what was decided, keeps what it wrote, and may decide otherwise."""
    run = own_demo.runs.waiting
    first, second = browse(own_demo.served), browse(own_demo.served)
    second.expect_console("412")
    cards = []
    for visit, name in ((first, "ann"), (second, "bob")):
        # The second does not hear of it before it sends its own.
        visit.page.route("**/v1/stream*", lambda route: route.abort())
        visit.expect_console("ERR_FAILED")
        one = card(visit.open("/doubts"))
        one.get_by_role("radio", name=NOT).check()
        one.get_by_label("Why it did not happen").fill(f"{name} asked the bank")
        one.get_by_label("Who decides").fill(name)
        cards.append(one)
    record(first.page).click()
    expect(cards[0].get_by_role("status")).to_contain_text("recorded at event 22")
    record(second.page).click()
    meanwhile = cards[1].get_by_role("alert")
    expect(meanwhile).to_contain_text("Your decision is not recorded")
    expect(meanwhile).to_contain_text("Decided at event 22 by ann: it did not happen")
    assert [one["decided_by"] for one in events(own_demo.db, run, "tool_call.decided")] == ["ann"]
    meanwhile.get_by_role("button", name="Decide otherwise").click()
    expect(cards[1].get_by_label("Why it did not happen")).to_have_value("bob asked the bank")
    record(second.page).click()
    expect(cards[1].get_by_role("status")).to_contain_text("recorded at event 23")
    found = events(own_demo.db, run, "tool_call.decided")
    assert [one["decided_by"] for one in found] == ["ann", "bob"]


def test_a_decision_is_sent_again_under_its_id(own_demo: Demo, browse: Browse) -> None:
    """An answer that got lost: the same decision is sent again, and is recorded once."""
    visit = browse(own_demo.served)
    visit.expect_console("ERR_FAILED")
    page = visit.open("/doubts")

    def lose(route: object) -> None:
        route.fetch()  # type: ignore[attr-defined]
        route.abort()  # type: ignore[attr-defined]

    page.route("**/resolve", lose, times=1)
    page.route("**/v1/stream*", lambda route: route.abort())
    page.reload()
    card(page).get_by_role("radio", name=AGAIN).check()
    record(page).click()
    expect(card(page).get_by_role("alert")).to_contain_text("The server does not answer")
    card(page).get_by_role("button", name="Try again").click()
    expect(card(page).get_by_role("status")).to_contain_text("recorded at event 22")
    assert len(events(own_demo.db, own_demo.runs.waiting, "tool_call.decided")) == 1


def test_what_is_typed_stays_while_the_list_is_loaded_again(own_demo: Demo, browse: Browse) -> None:
    """Another run begins to wait: its card comes, and the place and text of the first stay."""
    visit = browse(own_demo.served)
    page = visit.open("/doubts")
    text = card(page).get_by_label(VALUE)
    card(page).get_by_role("radio", name=HAPPENED).check()
    text.press_sequentially('{"paid"')
    stage = own_demo.stage("deserted")
    code, said = stage.turnledger("recover", str(own_demo.runs.deserted), "--app", "payments:agent")
    assert code == 8, said
    expect(page.get_by_role("region", name="call_2")).to_have_count(2)
    text.press_sequentially(": 1}")
    expect(text).to_have_value('{"paid": 1}')
    expect(text).to_be_focused()


def test_a_running_run_without_a_worker_says_so(visit: Visit, demo: Demo) -> None:
    """Its call may have happened: it is not shown as if somebody ran it."""
    page = visit.open("/doubts")
    page.get_by_role("button", name="running").click()
    page.wait_for_url("**/doubts?q=running")
    expect(card(page)).to_contain_text("No worker has the run. It was started, and may have")
    expect(card(page).get_by_role("radio")).to_have_count(3)
    page.get_by_role("link", name=str(demo.runs.deserted)).click()
    expect(page.locator("[data-call=call_2]")).to_contain_text("No worker has the run")
    visit.open("/doubts?q=parked")
    expect(page.get_by_text("No parked run has a call that has not ended.")).to_be_visible()


def test_a_reader_is_told_why_it_may_not_decide(browse: Browse, demo: Demo) -> None:
    """The session's role is said instead of the choices."""
    visit = browse(demo.served)
    visit.page.route(
        "**/v1/session", lambda route: route.fulfill(json={"id": "a", "role": "reader"})
    )
    page = visit.open("/doubts")
    expect(card(page)).to_contain_text("This session may read only")
    expect(card(page).get_by_role("radio")).to_have_count(0)


# --- approvals -----------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """A served ledger with a run that waits for approval of two calls."""

    served: Served
    run: UUID


def _asking(calls: int = 2, size: int = 1) -> Iterator[Event]:
    given = '{"euros": 5}'.ljust(size)
    asked = tuple(ToolCallRecord(f"call_{one}", "send", given) for one in range(1, calls + 1))
    yield RunStarted(request_type="Test")
    yield EvaluationStarted(evaluation_id="e", prompt_ns="a", prompt_key="b", prompt_digest="c")
    for sequence, (role, more) in enumerate([("user", {}), ("assistant", {"tool_calls": asked})]):
        message = InnerMessage(
            role=role,  # type: ignore[arg-type]
            content="pay",
            evaluation_id="e",
            sequence=sequence,
            **more,  # type: ignore[arg-type]
        )
        yield MessageAppended(message=message)
    for call in asked:
        yield ApprovalRequested(evaluation_id="e", call_id=call.call_id, name="send")
    yield RunWaiting(reason="approval", call_ids=tuple(call.call_id for call in asked))


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    """A ledger of its own."""
    run = new_run_id()
    with Ledger.open(tmp_path / "runs.db") as ledger:
        ledger.append(run, list(_asking()), NEW)
    with Served(tmp_path / "runs.db") as served:
        yield Asking(served, run)


def test_a_call_that_waits_for_approval_is_approved_or_denied(
    asking: Asking, browse: Browse
) -> None:
    """Each by itself; arguments that can't be checked are refused, with the reason."""
    visit = browse(asking.served)
    visit.expect_console("409")
    page = visit.open("/doubts")
    first, second = card(page, "call_1"), card(page, "call_2")
    first.get_by_role("radio", name="Approve with other arguments").check()
    given = first.get_by_label("All arguments, as a JSON object")
    expect(given).to_have_value('{"euros": 5}')
    given.fill("[5]")
    expect(first).to_contain_text("Arguments are a JSON object.")
    given.fill('{"euros": 4}')
    first.get_by_role("button", name="Record").click()
    expect(first.get_by_role("alert")).to_contain_text("no record of the schema")
    first.get_by_role("radio", name="Approve", exact=True).check()
    first.get_by_role("button", name="Record").click()
    expect(first.get_by_role("status")).to_contain_text("recorded at event 8")
    # The list was loaded again: the run waits no longer, and both calls are still there.
    expect(page.locator(".of-run", has_text="event 8")).to_have_count(2)
    expect(first).to_contain_text("turnledger recover")
    second.get_by_role("radio", name="Deny").check()
    second.get_by_label("Why it must not run").fill("ask first")
    shown = json.loads(second.locator(".appended pre").inner_text())
    second.get_by_role("button", name="Record").click()
    expect(second.get_by_role("status")).to_contain_text("recorded at event 9")
    found = events(asking.served.db, asking.run, "approval.decided")
    assert [one["decision"] for one in found] == ["approved", "denied"]
    assert shown["data"] == found[1]


def test_no_open_call_is_left_out_of_the_list(asking: Asking, browse: Browse) -> None:
    """A run has more than fit into an answer: it says so, and other runs are on the next page."""
    wide = new_run_id()
    with Ledger.open(asking.served.db) as ledger:
        ledger.append(wide, list(_asking(calls=80, size=10_000)), NEW)
    visit = browse(asking.served)
    page = visit.open("/doubts")
    expect(page.get_by_text("more open calls of this run did not fit here")).to_be_visible()
    expect(page.locator(".cards li")).to_have_count(25)
    page.get_by_role("button", name="more calls").click()
    expect(page.get_by_role("button", name="25 calls before these")).to_be_visible()
    page.get_by_role("button", name="Older runs").click()
    expect(page.get_by_role("link", name=str(asking.run))).to_have_count(2)
    page.get_by_role("button", name="Newer runs").click()
    expect(page.get_by_role("link", name=str(wide)).first).to_be_visible()
    assert visit.largest_answer < 300_000


def test_the_name_of_who_decides_is_remembered(asking: Asking, browse: Browse) -> None:
    """On this browser, for the next decision."""
    visit = browse(asking.served)
    page = visit.open("/doubts")
    choose: Callable[[], None] = card(page, "call_1").get_by_role("radio", name="Deny").check
    choose()
    card(page, "call_1").get_by_label("Who decides").fill("ann")
    visit.open("/doubts")
    choose()
    expect(card(page, "call_1").get_by_label("Who decides")).to_have_value("ann")
