"""How the golden histories were recorded: one run of each kind, with fixed ids and a fixed clock.

    python -m tests.replay.recording FOLDER

writes the files into a folder of yours, to look at or to add a new kind from. It never
touches tests/replay/histories: those are what programs of their time wrote, and a program
that reads them otherwise is wrong, not they. A new kind of run is added by copying its file
and its entry of digests.json there, once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid5

from tests.replay.script import BEGIN, NAMESPACE, FixedClock, Script, change, declarations
from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    CheckpointCleared,
    CheckpointStored,
    CustomEvent,
    Draft,
    EvaluationSuperseded,
    Event,
    Ledger,
    MediaContent,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    OutputRejected,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    ResourceSnapshotted,
    RunAbandoned,
    RunFailed,
    RunParked,
    RunResumed,
    RunWaiting,
    StateRestored,
    TextContent,
    TokenLimits,
    ToolCallDecided,
    ToolCallInDoubt,
    ToolMessageAmended,
    UsedOverrides,
    blob_name,
    export_runs,
    import_runs,
    prompt_stream_id,
)
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
from turnledger.projections import state_at

HISTORIES = Path(__file__).parent / "histories"
PICTURE = bytes(range(256))
REPORT = b"%PDF-1.7 not really\n"


# --- the kinds of runs ---------------------------------------------------------------


def no_tools(script: Script) -> None:
    script.begin(tags={"team": "red"}, deadline=BEGIN + timedelta(minutes=5))
    script.evaluate()
    script.finish(script.reply("Hello."), "Hello.")


def one_tool(script: Script) -> None:
    script.begin(budget=TokenLimits(max_total_tokens=5000), time_limit=60.0)
    script.evaluate(user="When is high tide in Lisbon?")
    script.checkpoint("initialized")
    script.reply("Looking.", ("call-1", "search", '{"to":"Lisbon"}'))
    sent = change("SentEmail", {"to": "ann@example.org"}, operation="append", call_id="call-1")
    script.tool("call-1", "search", "04:12 and 16:40", sent, value=["04:12", "16:40"])
    script.finish(script.reply("At 04:12 and 16:40."), "At 04:12 and 16:40.")


def three_sequential_tools(script: Script) -> None:
    script.begin()
    script.evaluate(user="Plan the trip.")
    for number, name in enumerate(("search", "book", "pay"), 1):
        script.reply("", (f"call-{number}", name, f'{{"n":{number}}}'))
        step = change("Step", {"name": name, "done": True}, call_id=f"call-{number}")
        spent = change("Wallet", {"cents": 100 * number}, "Spent", call_id=f"call-{number}")
        script.tool(f"call-{number}", name, f"{name}: ok", step, spent, value={"n": number})
    script.finish(script.reply("Booked and paid."), {"booked": True})


def three_parallel_tools(script: Script) -> None:
    script.begin()
    script.evaluate(user="Compare three cities.")
    cities = ("Lisbon", "Porto", "Faro")
    calls = [(f"call-{n}", "search", json.dumps({"city": city})) for n, city in enumerate(cities)]
    script.reply("Comparing.", *calls)
    for call_id, name, _ in calls:
        script.start(call_id, name)
    for place in (2, 0, 1):
        found = change("Step", {"name": cities[place]}, call_id=f"call-{place}")
        script.result(f"call-{place}", "search", f"{cities[place]}: sunny", found)
    script.finish(script.reply("All sunny."), "All sunny.")


def failing_tool(script: Script) -> None:
    script.begin()
    script.evaluate(user="Divide by zero.")
    script.reply("", ("call-1", "divide", '{"by":0}'), ("call-2", "divide", "not json"))
    script.start("call-1", "divide")
    script.fail("call-1", "divide", "division by zero")
    script.fail("call-2", "divide", "arguments are no JSON object")
    failed = ModelCallFailed(
        evaluation_id=script.evaluation_id,
        turn=2,
        error_type="RateLimited",
        error_message="slow down",
        retryable=True,
        status=429,
    )
    script.commit(
        ModelCalled(
            evaluation_id=script.evaluation_id, turn=2, request_digest="request-2", model="parrot-1"
        ),
        failed,
    )
    script.finish(script.reply("That can't be done."), None)


def visibility_expansion(script: Script) -> None:
    script.begin()
    script.evaluate(user="Read the appendix.")
    script.reply("", ("call-1", "open_sections", '{"keys":["appendix"]}'))
    script.start("call-1", "open_sections")
    overrides = {"appendix": "full"}
    script.commit(
        change("VisibilityOverrides", {"path": "appendix", "visibility": "full"}, "Override"),
        EvaluationSuperseded(
            evaluation_id=script.evaluation_id, reason="visibility", overrides=overrides
        ),
    )
    script.evaluate(user="Read the appendix.", number=2)
    script.reply("", ("call-1", "search", "{}"))
    script.tool("call-1", "search", "It says 42.")
    script.finish(script.reply("42."), 42)


def structured_output(script: Script) -> None:
    script.begin(request={"question": "structured, please"})
    script.evaluate(user="The answer as JSON, please.")
    script.reply("", ("call-1", "search", '{"q":"a"}'))
    first = looked_up(script, "call-1", "a long text about a")
    script.reply("", ("call-2", "search", '{"q":"b"}'))
    last = looked_up(script, "call-2", "a long text about b")
    answer = script.reply('{"answer":42}')
    output = {"answer": 42, "sources": ["a", "b"]}
    script.commit(
        ToolMessageAmended(
            message_id=last.message.message_id, content=json.dumps(output), reason="parsed output"
        ),
        ToolMessageAmended(message_id=first.message.message_id, content="(a)", reason="too long"),
    )
    script.finish(answer, output)


def looked_up(script: Script, call_id: str, text: str) -> MessageAppended:
    script.start(call_id, "search")
    return script.result(call_id, "search", text)


def reused_session(script: Script) -> None:
    script.begin(session_id=uuid5(NAMESPACE, "session"))
    script.evaluate("optimize")
    script.reply("", ("call-1", "summarize", "{}"))
    digest = change("WorkspaceDigest", {"text": "three files"}, call_id="call-1")
    script.tool("call-1", "summarize", "done", digest)
    script.finish(script.reply("Summarised."))
    script.release()
    child = uuid5(script.run_id, "continuation")
    at = script.ledger.head(script.run_id)
    again = Script(script.ledger, script.name, script.clock, child)
    again.begin(
        session_id=uuid5(NAMESPACE, "session"), parent=script.run_id, at=at, kind="continuation"
    )
    again.evaluate("review", user="Review it.", number=2)
    again.finish(again.reply("Looks good."), "Looks good.")


def fork(script: Script) -> None:
    script.begin(tags={"try": "first"})
    script.evaluate(user="Send the mail.")
    script.reply("", ("call-1", "send_email", '{"to":"ann"}'), ("call-2", "search", "{}"))
    script.start("call-1", "send_email")
    at = script.ledger.head(script.run_id)
    script.result("call-1", "send_email", "sent", change("SentEmail", {"to": "ann"}))
    script.tool("call-2", "search", "nothing")
    script.finish(script.reply("Sent."), "Sent.")
    child = script.ledger.fork(
        script.run_id, at=at, child=uuid5(script.run_id, "fork"), tags={"try": "second"}
    )
    other = Script(script.ledger, script.name, script.clock, child)
    other.evaluation_id, other.sequence, other.turn = script.evaluation_id, 3, 1
    other.claim("worker-2")
    other.commit(ToolCallInDoubt(**other.of_call("call-1", "send_email"), reason="fork"))
    other.fail("call-1", "send_email", "the outcome is unknown")
    other.tool("call-2", "search", "something")
    other.finish(other.reply("Not sent."), "Not sent.")


def in_doubt_and_decided(script: Script) -> None:
    script.begin()
    script.evaluate(user="Pay the invoice.")
    script.reply("", ("call-1", "pay", '{"cents":500}'), ("call-2", "pay", '{"cents":7}'))
    script.start("call-1", "pay")
    script.start("call-2", "pay")
    script.claim("worker-2")
    script.commit(
        RunResumed(attempt=1, from_version=script.ledger.head(script.run_id)),
        ToolCallInDoubt(**script.of_call("call-1", "pay"), reason="the worker was killed"),
        ToolCallInDoubt(**script.of_call("call-2", "pay"), reason="the worker was killed"),
        RunWaiting(reason="two payments are in doubt", call_ids=("call-1", "call-2")),
    )
    decided = ToolCallDecided(
        call_id="call-1", decision="completed", value={"ok": True}, text="paid", decided_by="ann"
    )
    script.commit(decided)
    script.commit(ToolCallDecided(call_id="call-2", decision="retry", decided_by="ann"))
    spent = change("Wallet", {"cents": 500}, "Spent", call_id="call-1")
    script.result("call-1", "pay", "paid", spent, value={"ok": True})
    script.start("call-2", "pay", attempt=2)
    script.result("call-2", "pay", "paid", attempt=2)
    script.finish(script.reply("Both are paid."), "paid")


def approvals(script: Script) -> None:
    """One call needs no approval; of the others one is approved, one denied, one edited."""
    script.begin()
    script.evaluate(user="Pay the invoices.")
    amounts = {"call-1": 1, "call-2": 20, "call-3": 30, "call-4": 40}
    script.reply("", *((call, "pay", f'{{"cents":{cents}}}') for call, cents in amounts.items()))
    for call, cents in amounts.items():
        evaluation_id = script.evaluation_id
        script.commit(
            ApprovalRequested(
                evaluation_id=evaluation_id, call_id=call, name="pay", needed=cents > 10
            )
        )
    script.start("call-1", "pay")
    script.result("call-1", "pay", "paid")
    waiting = ("call-2", "call-3", "call-4")
    script.commit(RunWaiting(reason="these calls need a person's approval", call_ids=waiting))
    script.commit(ApprovalDecided(call_id="call-2", decision="approved", decided_by="ann"))
    script.commit(
        ApprovalDecided(call_id="call-3", decision="denied", text="too much", decided_by="ann")
    )
    script.commit(
        ApprovalDecided(
            call_id="call-4", decision="edited", arguments='{"cents":4}', decided_by="bob"
        )
    )
    script.claim("worker-2")
    script.commit(RunResumed(attempt=1, from_version=script.ledger.head(script.run_id)))
    script.fail("call-3", "pay", "too much")
    script.start("call-2", "pay")
    script.result("call-2", "pay", "paid")
    script.start("call-4", "pay")
    script.result("call-4", "pay", 'It was called with {"cents":4} instead of yours.\n\npaid')
    script.finish(script.reply("Two are paid."), "paid")


def media(script: Script) -> None:
    script.begin()
    script.evaluate()
    parts = (
        TextContent("What is on this picture?"),
        MediaContent("image", blob=blob_name(PICTURE), mime="image/png", prompt_hint="a parrot"),
        MediaContent("document", url="https://example.org/manual.pdf", id="manual"),
    )
    asked = script.message("user", "", parts=parts, policy="user", step_num=1)
    script.commit(asked, blobs=(PICTURE,))
    script.reply("", ("call-1", "write_report", "{}"))
    files = ResourceSnapshotted(
        resource="workspace",
        files={"report.pdf": blob_name(REPORT)},
        removed=("old.txt",),
        digest="r1",
    )
    script.start("call-1", "write_report")
    script.commit(files, blobs=(REPORT,))
    script.result("call-1", "write_report", "report.pdf")
    script.finish(script.reply("A parrot."), "A parrot.")


def parked_and_abandoned(script: Script) -> None:
    script.begin()
    script.evaluate(user="Try.")
    for attempt in range(1, 4):
        script.commit(RunFailed(error_type="Outage", error_message="no network", phase="request"))
        script.claim(f"worker-{attempt + 1}")
        script.commit(RunResumed(attempt=attempt, from_version=script.ledger.head(script.run_id)))
    script.commit(RunFailed(error_type="Outage", error_message="no network", phase="request"))
    script.commit(RunParked(reason="failed too often", attempts=3))
    other = Script(script.ledger, script.name, script.clock, uuid5(script.run_id, "abandoned"))
    other.begin()
    other.evaluate(user="Wait for me.")
    other.reply("", ("call-1", "search", "{}"))
    other.start("call-1", "search")
    other.commit(RunAbandoned(reason="nobody needs it"))


def retired_tag(script: Script) -> None:
    script.begin()
    script.evaluation_id = "evaluation-1"
    tool_calls = [{"call_id": "call-1", "name": "search", "arguments": {"to": "Lisbon"}}]
    for sequence, fields in enumerate(
        (
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Tides?"},
            {"role": "assistant", "content": "", "turn": 1, "tool_calls": tool_calls},
            {"role": "tool", "content": "04:12", "turn": 1, "tool_call_id": "call-1"},
        )
    ):
        payload = {
            "evaluation_id": script.evaluation_id,
            "sequence": sequence,
            "created_at": "2025-11-03T09:15:27Z",
            "message_id": str(uuid5(script.run_id, f"old/{sequence}")),
            **fields,
        }
        written = Entry(
            script.clock.new_id(),
            "message.recorded",
            json.dumps(payload).encode(),
            CustomEvent(kind="test.note"),
        )
        request = AppendRequest(str(script.run_id), [written], ANY_VERSION, script.epoch, {})
        script.ledger.store.write(lambda tx, request=request: append(tx, request, script.clock))
    script.sequence, script.turn = 4, 1
    script.finish(script.reply("At 04:12."), "At 04:12.")


def restored_state(script: Script) -> None:
    script.begin()
    script.evaluate(user="Plan.")
    script.commit(change("Step", {"name": "a"}), change("Step", {"name": "b"}))
    items = [{"name": "a", "done": True}]
    entry = {"slice_type": "app.plan:Step", "item_type": "app.plan:Step", "items": items}
    script.commit(StateRestored(snapshot={"slices": [entry]}, reason="rollback"))
    script.commit(
        CheckpointStored(
            checkpoint='{"run_id":"mine"}',
            phase="post_tool",
            tool_calls_completed=2,
            created_at=BEGIN - timedelta(days=2),
        )
    )
    script.commit(CheckpointCleared(reason="cleanup"))
    script.commit(change("Step", None, operation="clear"), change("Step", {"name": "c"}))
    script.commit(CustomEvent(kind="acme.reviewed", data={"by": "ann"}))
    script.finish(script.reply("Planned."), "Planned.")


def overridden_prompt(script: Script) -> None:
    prompt = {"prompt_ns": "demo", "prompt_key": "answer"}
    stream = prompt_stream_id("demo", "answer")

    def edit(version: int, *events: Event) -> None:
        drafts = [Draft(event, script.clock.new_id()) for event in events]
        script.ledger.append(stream, drafts, version)

    brief = PromptOverrideSet(
        **prompt, path="tone", body="Be brief.", replaces="t1", note="shorter", set_by="ann"
    )
    described = PromptOverrideSet(**prompt, path="tool:search", body="Searches.", replaces="t2")
    edit(0, brief, described)
    edit(2, PromptTagMoved(**prompt, tag_name="stable", version=2, moved_by="bob"))
    script.begin()
    used = UsedOverrides(
        store="ledger",
        tag="stable",
        digest="o1",
        authored="prompt-without",
        version=2,
        paths=("tone", "tool:search"),
    )
    script.evaluate(user="When is high tide?", overrides=used)
    edit(3, PromptOverrideCleared(**prompt, path="tool:search", note="no use", cleared_by="ann"))
    edit(4, PromptTagMoved(**prompt, tag_name="stable", version=4))
    script.reply("", ("call-1", "search", "{}"))
    script.tool("call-1", "search", "04:12")
    script.finish(script.reply("At 04:12."), "At 04:12.")


def chat(script: Script) -> None:
    session_id = uuid5(NAMESPACE, "session")
    script.begin(session_id=session_id, agent="demo/guide")
    script.evaluate(user="When is high tide?")
    script.reply("", ("call-1", "search", "{}"))
    script.tool("call-1", "search", "04:12", change("Step", {"name": "search"}))
    script.finish(script.reply("At 04:12."), "At 04:12.")
    before, asked = script, ("And in French?", "And the day after?")
    for number, (user, said) in enumerate(zip(asked, ("À 04 h 12.", "À 05 h 03."), strict=True), 2):
        before.release()
        child, at = uuid5(before.run_id, "turn"), before.ledger.head(before.run_id)
        turn = Script(script.ledger, script.name, script.clock, child)
        turn.begin(
            session_id=session_id, agent="demo/guide", parent=before.run_id, at=at, kind="turn"
        )
        turn.evaluate(user=user, number=number, after=before.evaluation_id)
        turn.checkpoint("initialized")
        if number == 3:
            turn.reply("", ("call-1", "search", '{"day":2}'))
            turn.tool("call-1", "search", "05:03", change("Step", {"name": "search", "done": True}))
        turn.finish(turn.reply(said), said)
        before = turn


def accepted_prompt_and_rejected_output(script: Script) -> None:
    """Killed in a tool; recovered under another prompt, whose output is asked for again."""
    script.begin()
    script.evaluate(user="When is high tide?")
    script.checkpoint("initialized")
    script.reply("", ("call-1", "search", "{}"))
    script.start("call-1", "search")
    before = script.evaluation_id
    script.claim("worker-2")
    at = script.ledger.head(script.run_id)
    script.commit(
        RunResumed(attempt=1, from_version=at, catalogue=5, prompt="accepted", prompt_by="ann")
    )
    script.evaluate("tell", number=2, after=before, accepted=True, accepted_by="ann")
    script.commit(ToolCallInDoubt(**script.of_call("call-1", "search"), reason="interrupted"))
    script.start("call-1", "search", attempt=2)
    script.result("call-1", "search", "04:12", attempt=2)
    wrong = script.reply("At 04:12.")
    asked = script.message("user", "Your answer is not JSON. Answer again.")
    script.commit(
        OutputRejected(
            evaluation_id=script.evaluation_id,
            message_id=wrong.message.message_id,
            asked_id=asked.message.message_id,
            error='expected one JSON object, got text "At 04:12."',
        ),
        asked,
    )
    script.finish(script.reply('{"at":"04:12"}'), {"at": "04:12"})


KINDS: dict[str, Callable[[Script], None]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        no_tools,
        one_tool,
        three_sequential_tools,
        three_parallel_tools,
        failing_tool,
        visibility_expansion,
        structured_output,
        reused_session,
        fork,
        in_doubt_and_decided,
        approvals,
        media,
        parked_and_abandoned,
        retired_tag,
        restored_state,
        overridden_prompt,
        chat,
        accepted_prompt_and_rejected_output,
    )
}


# --- files ---------------------------------------------------------------------------


def recorded(name: str) -> bytes:
    """A history as its file's bytes, made anew."""
    clock = FixedClock(name)
    with Ledger.open("memory://", clock=clock) as ledger:
        KINDS[name](Script(ledger, name, clock))
        out = BytesIO()
        export_runs(ledger, out)
        return out.getvalue()


def opened(content: bytes) -> Ledger:
    """A ledger that holds a history."""
    ledger = Ledger.open("memory://")
    import_runs(ledger, BytesIO(content))
    return ledger


def run_ids(ledger: Ledger) -> Iterator[str]:
    """The runs, and the streams of prompts."""
    found = [*ledger.runs(), *ledger.runs(kind="prompt")]
    return iter(sorted(str(run.run_id) for run in found))


def digests(content: bytes) -> dict[str, dict[str, Any]]:
    """Where each run of a history ends: with the program's declarations and without."""
    found: dict[str, dict[str, Any]] = {}
    with opened(content) as ledger:
        for run_id in run_ids(ledger):
            bare = state_at(ledger, run_id)
            declared = state_at(ledger, run_id, declarations=declarations())
            found[run_id] = {
                "version": bare.version,
                "state_digest": declared.state_digest,
                "outcome_digest": declared.outcome_digest,
                "state_digest_undeclared": bare.state_digest,
                "outcome_digest_undeclared": bare.outcome_digest,
            }
    return found


def kept() -> dict[str, bytes]:
    """The golden histories: what is in their files."""
    return {path.stem: path.read_bytes() for path in sorted(HISTORIES.glob("*.jsonl"))}


def main(folder: Path) -> None:
    if folder.resolve() == HISTORIES.resolve():
        sys.exit("Golden histories are never written anew: choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    histories = {name: recorded(name) for name in KINDS}
    for name, content in histories.items():
        (folder / f"{name}.jsonl").write_bytes(content)
    ends = {name: digests(content) for name, content in histories.items()}
    (folder / "digests.json").write_text(json.dumps(ends, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
