"""A run survives `kill -9`, and nobody can change it unseen. `make demo` runs this.

Each claim is checked as it is printed; the first false one ends the demo with exit code 1.
It needs the base install only: no keys, no network, one SQLite file in a temporary folder.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from itertools import chain, count
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid5

from rich.console import Console

from ledger import ANY, NEW, Draft, InnerMessage, Ledger, StaleEpochError, events, new_run_id
from ledger.messages import Role, ToolCallRecord

EVALUATION, CALL, TOOL = "evaluation-1", "call-1", "book_flight"
ENOUGH = 25  # confirmed events before the writer is killed
CHANGE = "UPDATE events SET data=replace(data, 'Lisbon', 'Lisboa') WHERE run_id=? AND version=?"
console = Console(highlight=False, markup=False, soft_wrap=True)


def tell(text: str) -> None:
    console.print(f"       {text}", style="dim")


def check(claim: str, holds: bool) -> None:
    """Print a claim that holds; end the demo at one that does not."""
    console.print(f"  {'ok  ' if holds else 'FALSE'} {claim}", style="green" if holds else "red")
    if not holds:
        sys.exit(1)


def refusal(kind: type[Exception], action: Callable[[], object]) -> str:
    """What is said when an action is refused; nothing if it is not."""
    try:
        action()
    except kind as error:
        return f"{kind.__name__}: {error}"
    return ""


def until_the_tool() -> list[events.Event]:
    """What happens in the run until its tool is at work."""
    call = ToolCallRecord(CALL, TOOL, '{"to": "Lisbon"}')
    reply = InnerMessage("assistant", "", EVALUATION, 2, tool_calls=(call,), turn=1)
    prompt = {"prompt_ns": "demo", "prompt_key": "travel", "prompt_digest": "-"}
    return [
        events.EvaluationStarted(evaluation_id=EVALUATION, **prompt),
        said("system", "You book trips.", 0),
        said("user", "Book me a flight to Lisbon.", 1),
        events.ModelCalled(evaluation_id=EVALUATION, turn=1, request_digest="-"),
        events.MessageAppended(message=reply),
        events.ModelReplied(evaluation_id=EVALUATION, turn=1, message_id=reply.message_id),
        events.ToolCallStarted(evaluation_id=EVALUATION, call_id=CALL, name=TOOL),
    ]


def said(role: Role, text: str, sequence: int) -> events.MessageAppended:
    return events.MessageAppended(message=InnerMessage(role, text, EVALUATION, sequence))


def report(run_id: UUID, step: int) -> Draft:
    """A step of the tool's. Its id follows from the step, so whoever retries it knows the id."""
    event = events.CustomEvent(kind="demo.step", data={"step": step})
    return Draft(event, uuid5(run_id, f"step {step}"))


def write_until_killed(file: Path, run_id: UUID, confirmed: Connection) -> None:
    """Work on a run for ever; send version and id of each event once append has confirmed it."""
    with Ledger.open(file) as ledger:
        ledger.append(run_id, events.RunStarted(request="Lisbon"), expected_version=NEW)
        claim = ledger.claim(run_id)
        steps = (report(run_id, step) for step in count(1))
        for version, event in enumerate(chain(until_the_tool(), steps), start=claim.version):
            (record,) = ledger.append(run_id, event, version, epoch=claim.epoch).records
            confirmed.send((record.version, record.event_id))


def kill_a_writer(file: Path, run_id: UUID) -> dict[int, UUID]:
    """Start a writer, kill it in the middle, and give what it had confirmed until then."""
    ours, theirs = Pipe(duplex=False)
    given = (file, run_id, theirs)
    writer = get_context("spawn").Process(target=write_until_killed, args=given, daemon=True)
    writer.start()
    theirs.close()
    confirmed: dict[int, UUID] = {}
    try:
        while ours.poll(timeout=60.0):
            version, event_id = ours.recv()
            confirmed[version] = event_id
            if len(confirmed) == ENOUGH:
                os.kill(writer.pid, signal.SIGKILL)
    except EOFError:
        writer.join()  # the pipe is closed: the writer is gone
    tell(f"process {writer.pid} confirmed {len(confirmed)} events through a pipe, then was killed")
    check("it died of SIGKILL while it was appending", writer.exitcode == -signal.SIGKILL)
    return confirmed


def recover(ledger: Ledger, run_id: UUID, confirmed: dict[int, UUID]) -> None:
    found = {record.version: record.event_id for record in ledger.read(run_id)}
    there = all(found.get(version) == event_id for version, event_id in confirmed.items())
    check(f"all {len(confirmed)} confirmed events are on disk, each at its version", there)
    check(f"versions 1 to {len(found)}, no gap", list(found) == [*range(1, len(found) + 1)])
    check("the hash chain verifies", ledger.verify(run_id).ok)
    lease = ledger.store.lease(str(run_id))
    left = lease.expires_at / 1e6 - time.time() if lease else 0
    claim = ledger.claim(run_id)
    check(f"a dead worker's lease is void, {left:.0f} s early", left > 0 and claim.epoch == 2)
    doubt = events.ToolCallInDoubt(evaluation_id=EVALUATION, call_id=CALL, name=TOOL)
    goes_on = ledger.append(run_id, doubt, claim.version, epoch=2)
    check("the new worker has epoch 2 and appends", goes_on.version == claim.version + 1)


def zombie(ledger: Ledger, run_id: UUID) -> None:
    late = events.CustomEvent(kind="demo.zombie")
    said = refusal(StaleEpochError, lambda: ledger.append(run_id, late, ANY, epoch=1))
    check("a zombie that still has epoch 1 is refused", bool(said))
    tell(said.replace(str(run_id), "R"))


def retry(ledger: Ledger, run_id: UUID, last: int) -> None:
    head, step = ledger.head(run_id), ledger.record(run_id, last).event.data["step"]
    again = ledger.append(run_id, report(run_id, step), ANY, epoch=2)
    once = again.duplicate and again.version == last and ledger.head(run_id) == head
    check(f"step {step}, appended again with the same id, is not doubled", once)
    next_one = ledger.append(run_id, report(run_id, step + 1), ANY, epoch=2)
    fate = "had" if next_one.duplicate else "had not"
    tell(f"step {step + 1} was never confirmed; it {fate} reached the disk before the kill")
    steps = [r.event.data["step"] for r in ledger.read(run_id) if r.tag == events.CustomEvent.tag]
    check("retried, it is there exactly once", steps == list(range(1, step + 2)))


def fork(ledger: Ledger, run_id: UUID) -> None:
    head, records = ledger.head(run_id), sum(1 for _ in ledger.tail())
    at = next(r.version for r in ledger.read(run_id) if r.tag == events.ModelCalled.tag) - 1
    child = ledger.fork(run_id, at, tags={"why": "what if the model had asked first?"})
    ledger.append(child, said("assistant", "On which day?", 2), expected_version=at + 1)
    lineage = [(r.version, r.tag, r.run_id == run_id) for r in ledger.read(child)]
    for version, tag, shared in lineage[at - 1 :]:
        tell(f"{version}  {tag:<16}  {'its parent' if shared else 'the fork'}'s")
    own = [version for version, _, shared in lineage if not shared]
    check(f"the fork reads its parent's first {at} events, then its own", own == [at + 1, at + 2])
    untouched = sum(1 for _ in ledger.tail()) == records + 2 and ledger.head(run_id) == head
    check("the shared events were not copied, and the parent is as it was", untouched)


def tamper(file: Path, run_id: UUID, version: int) -> None:
    """Change one byte of a record, as anybody with the file and a plain sqlite3 can."""
    db = sqlite3.connect(file, isolation_level=None)
    record = (str(run_id), version)
    said = refusal(sqlite3.IntegrityError, lambda: db.execute(CHANGE, record))
    check("a plain UPDATE is refused by the database itself", bool(said))
    tell(said)
    db.execute("DROP TRIGGER events_refuse_UPDATE")
    changed = db.execute(CHANGE, record).rowcount
    db.close()
    check(f"with the trigger dropped, one byte of version {version} is changed", changed == 1)


def main() -> None:
    with TemporaryDirectory() as folder:
        file, run_id = Path(folder) / "runs.db", new_run_id()
        console.rule("1. A worker appends the events of an agent's run, and gets a SIGKILL")
        confirmed = kill_a_writer(file, run_id)
        with Ledger.open(file) as ledger:
            console.rule("2. Another process opens the ledger and takes the run over")
            recover(ledger, run_id, confirmed)
            console.rule("3. Zombies and retries")
            zombie(ledger, run_id)
            retry(ledger, run_id, max(confirmed))
            console.rule("4. What if? A fork")
            fork(ledger, run_id)
            check("the whole ledger verifies", ledger.verify_all().ok)
            victim = next(r.version for r in ledger.read(run_id) if "to Lisbon" in r.data)
        console.rule("5. Somebody changes history in the file")
        tamper(file, run_id, victim)
        with Ledger.open(file) as ledger:
            problems = ledger.verify(run_id).problems
        check("verify names the very record", [p.version for p in problems] == [victim])
        tell(str(problems[0]).replace(str(run_id), "R").replace(", found ", "\n       found "))
        tell("from a shell: turnledger verify RUN --db FILE, which exits with 5")
    console.rule("all of this was checked while it was printed")


if __name__ == "__main__":
    main()
