"""Scenario: two processes want the same thing at the same moment, again and again."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.crash.processes import Crew, Voice
from tests.crash.shared_memory import StartLine
from tests.crash.worker import new_id
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    Ledger,
    RunClaimedError,
    StoreBusyError,
    StoreUnavailableError,
)


def run(crew: Crew, *, url: str, seed: int, races: int, prize: str) -> dict[str, Any]:
    """Both racers' outcomes of every race; `prize` says what they race for."""
    line = StartLine(2)
    work = {
        "version": _race_for_version,
        "event": _race_for_event,
        "mirror": _race_of_mirrors,
        "claim": _race_for_claim,
    }
    racers = [crew.start(f"racer {me}", work[prize], url, line, me, seed, races) for me in range(2)]
    outcomes: list[list[Any]] = [[], []]
    for racer, [_, outcome] in crew.join(*racers):
        outcomes[racers.index(racer)].append(outcome)
    return {"races": list(zip(*outcomes, strict=True))}


def _race_for_version(
    voice: Voice, url: str, line: StartLine, me: int, seed: int, races: int
) -> None:
    """Every fourth race is for a new run's first version, the others for one run's next."""
    random = Random(seed)
    long_run = new_id(random)
    version = 0
    with Ledger.open(url) as ledger:
        for number in range(races):
            new_run = new_id(random)
            is_new = number % 4 == 0
            run_id, expected = (new_run, NEW) if is_new else (long_run, version)
            note = CustomEvent(kind="race.entry", data={"racer": me, "race": number})
            line.wait(me)
            try:
                won = ledger.append(run_id, note, expected)
            except ConcurrentAppendError as error:
                outcome = ["lost", error.run_id, error.expected, error.found, str(error)]
            else:
                outcome = ["won", run_id, 0 if is_new else version, won.version, ""]
            voice.say("race", outcome)
            version += not is_new


def _race_for_event(
    voice: Voice, url: str, line: StartLine, me: int, seed: int, races: int
) -> None:
    """The same drafts by both: a retry that overtakes the first try."""
    random = Random(seed)
    run_id = new_id(random)
    with Ledger.open(url) as ledger:
        for number in range(races):
            notes = [
                Draft(CustomEvent(kind="race.entry", data=number), new_id(random))
                for _ in range(1 + number % 3)
            ]
            line.wait(me)
            while True:
                try:
                    done = ledger.append(run_id, notes, ANY)
                except StoreBusyError:
                    raise
                except StoreUnavailableError:
                    continue
                break
            voice.say("race", [done.duplicate, done.version])


def _race_of_mirrors(
    voice: Voice, url: str, line: StartLine, me: int, seed: int, races: int
) -> None:
    """Three of four events by each, two of them by both; every third race begins a new run."""
    random = Random(seed)
    run_id = new_id(random)
    with Ledger.open(url) as ledger:
        for number in range(races):
            run_id = new_id(random) if number % 3 == 0 else run_id
            notes = [
                Draft(CustomEvent(kind="race.entry", data=place), new_id(random))
                for place in range(4)
            ]
            line.wait(me)
            while True:
                try:
                    done = ledger.append(run_id, notes[me : me + 3], ANY, known="skip")
                except StoreBusyError:
                    raise
                except StoreUnavailableError:
                    continue
                break
            voice.say("race", [record.event.data for record in done.new])  # type: ignore[union-attr]


def _race_for_claim(
    voice: Voice, url: str, line: StartLine, me: int, seed: int, races: int
) -> None:
    """One run; whoever got it gives it back before the next race."""
    run_id = new_id(Random(seed))
    with Ledger.open(url) as ledger:
        ledger.append(run_id, CustomEvent(kind="race.entry", data=me), ANY)
        for _ in range(races):
            line.wait(me)
            try:
                claim = ledger.claim(run_id, worker=f"racer {me}")
            except RunClaimedError as error:
                claim, outcome = None, ["lost", error.worker, error.epoch]
            else:
                outcome = ["won", claim.worker, claim.epoch]
            voice.say("race", outcome)
            line.wait(me)
            if claim is not None:
                claim.release()
