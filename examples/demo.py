"""An agent is killed inside a payment, and pays once. `make demo` runs this.

Each claim is checked as it is printed; the first false one ends the demo with exit code 1.
It needs no keys and no network beyond this machine: one SQLite file in a temporary folder, and
the extra `http` for the scene with a server.
The agent is in examples/payments.py, what starts and kills its processes in examples/stage.py.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from stage import HERE, Stage, check, console, refusal, tell

from turnledger.adapters.http import LedgerClient
from turnledger.ledger import ANY, Ledger, RunResumed, StaleEpochError, new_run_id
from turnledger.projections import state_at

CHANGE = "UPDATE events SET data=replace(data, 'Paid 120', 'Paid 999') WHERE run_id=? AND version=?"


def work(ledger: str, run: str) -> None:
    """What an agent's process does; `ledger` is a path or a URL."""
    from payments import Invoice, agent

    print(agent.run(Invoice(17), ledger=ledger, run_id=run).text)


def undisturbed(stage: Stage) -> str:
    run = new_run_id()
    answer = stage.agent(run).communicate()[0].strip()
    check(f"it answers: {answer}", answer == "Invoice 17 is paid: 120.")
    check("the bank has one payment", len(stage.payments()) == 1)
    stage.bank.unlink()
    return answer


def killed(stage: Stage, run: UUID) -> None:
    check("it died of SIGKILL, after it had paid", stage.kill_an_agent(run) == -signal.SIGKILL)
    check("the bank has the payment, and the agent never heard of it", len(stage.payments()) == 1)
    with Ledger.open(stage.ledger) as ledger:
        (call,) = state_at(ledger, run).tools.pending()
        check("on disk: the call was started, and has no result", call.status == "started")
        check("the hash chain verifies", ledger.verify(run).ok)


def recovered(stage: Stage, run: UUID, answer: str) -> None:
    code, said = stage.turnledger("recover", str(run), "--app", "payments:agent")
    check("recover pays nothing: it asks a person, and exits with 8", code == 8)
    tell(said.split(". Find")[0].replace(str(run), "R").strip())
    check("still one payment", len(stage.payments()) == 1)
    decided = ("resolve", str(run), "call_2", "--completed", '{"paid": 120}', "--by", "ann")
    check("she looks at the bank, and says that it happened", stage.turnledger(*decided)[0] == 0)
    code, _ = stage.turnledger("recover", str(run), "--app", "payments:agent")
    check("another process goes on from there, to the end", code == 0)
    with Ledger.open(stage.ledger) as ledger:
        state = state_at(ledger, run)
        last = state.history.to_list()[-1].blocks[-1].text  # type: ignore[union-attr]
        check(f"the answer is the undisturbed run's: {last}", last == answer)
        check("there was one payment, in all", len(stage.payments()) == 1)
        once = [call.is_over and call.attempts == 1 for call in state.tools.calls]
        check("every call ended, none was run twice", all(once))
        told = ("tool_call.in_doubt", "tool_call.decided", "run.resumed")
        tell(", ".join(f"{r.version} {r.tag}" for r in ledger.read(run) if r.tag in told))
        late = RunResumed(attempt=9, from_version=1)
        said = refusal(StaleEpochError, lambda: ledger.append(run, late, ANY, epoch=1))
        check("had the first worker only slept: it could write nothing more", bool(said))
        tell(said.replace(str(run), "R"))
    for line in stage.turnledger("timeline", str(run))[1].splitlines()[:7]:
        tell(line)


def replayed(stage: Stage, run: UUID) -> None:
    """Run the agent's code again on the record, as it is and with one line changed."""
    replay = ("replay", str(run), "--app", "payments:agent")
    check("the agent's code runs again: every step is the same", stage.turnledger(*replay)[0] == 0)
    check("still one payment: no handler was called", len(stage.payments()) == 1)
    changed = stage.folder / "changed"
    changed.mkdir()
    source = (HERE / "payments.py").read_text()
    (changed / "payments.py").write_text(source.replace("${number}.", "${number}, quickly."))
    code, said = stage.turnledger(*replay, cwd=changed)
    check("with one line of the agent changed it is caught, and exits with 6", code == 6)
    with Ledger.open(stage.ledger) as ledger:
        begun = next(r.version for r in ledger.read(run) if r.tag == "evaluation.started")
    check("at the very event", f"First divergence at version {begun}, evaluation.started" in said)
    why = [line for line in said.splitlines() if line.startswith(("First divergence", "Likely"))]
    tell(" ".join(why))
    for shown in said.splitlines():
        if shown.startswith(("-Settle", "+Settle")):
            tell(shown)


def served(stage: Stage) -> None:
    """Kill a worker that has a URL and a token, and no path to the ledger's file."""
    token = stage.turnledger("token", "new", "--role", "writer")[1].split()[0]
    with stage.server() as url, LedgerClient(url, token=token) as ledger:
        away = Stage(stage.folder / "away", url, TURNLEDGER_TOKEN=token, DEMO_LEASE="5")
        run = new_run_id()
        died = away.kill_an_agent(run)
        check("it died of SIGKILL, after it had paid", died == -signal.SIGKILL)
        check("the run is still its own: the server can't see it die", bool(ledger.worker_of(run)))
        while ledger.worker_of(run):
            time.sleep(0.05)
        recover = ("recover", str(run), "--app", "payments:agent")
        code = away.turnledger(*recover)[0]
        check("when its lease is up, another worker takes the run, and asks", code == 8)
        away.turnledger("resolve", str(run), "call_2", "--completed", '{"paid": 120}')
        check("after the decision it goes on to the end", away.turnledger(*recover)[0] == 0)
        check("there was one payment, in all", len(away.payments()) == 1)
        check("the chain verifies, as the server has it", ledger.verify(run).ok)


def tampered(stage: Stage, run: UUID) -> None:
    """Change a record, as anybody with the file and a plain sqlite3 can."""
    with Ledger.open(stage.ledger) as ledger:
        runs = [info.run_id for info in ledger.runs()]
        victims = [
            (one, r.version) for one in runs for r in ledger.read(one) if "Paid 120" in r.data
        ]
    victim, version = victims[0]
    db = sqlite3.connect(stage.ledger, isolation_level=None)
    record = (str(victim), version)
    said = refusal(sqlite3.IntegrityError, lambda: db.execute(CHANGE, record))
    check("a plain UPDATE is refused by the database itself", bool(said))
    tell(said)
    db.execute("DROP TRIGGER events_refuse_UPDATE")
    check("with the trigger dropped, it goes through", db.execute(CHANGE, record).rowcount == 1)
    db.close()
    with Ledger.open(stage.ledger) as ledger:
        problems = ledger.verify_all().problems
    check("verify names the very record", problems[0].version == version)
    tell(str(problems[0]).replace(str(victim), "R").split(", found ")[0])


def main() -> None:
    with TemporaryDirectory() as folder:
        stage, run = Stage(Path(folder)), new_run_id()
        console.rule("1. An agent settles an invoice, undisturbed")
        answer = undisturbed(stage)
        console.rule("2. The same agent gets a SIGKILL inside its payment")
        killed(stage, run)
        console.rule("3. Another process recovers the run")
        recovered(stage, run, answer)
        console.rule("4. The agent is replayed, and so is a changed one")
        replayed(stage, run)
        console.rule("5. A server has the ledger, and a worker only its URL and a token")
        served(stage)
        console.rule("6. A record is changed in the file")
        tampered(stage, run)
    console.rule("all of this was checked while it was printed")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    else:
        main()
