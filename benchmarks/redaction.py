"""What redaction costs: of an append, on hostile text, and other threads while it searches."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event as Flag
from threading import Thread

from benchmarks.measuring import Figure, Result, Time, cpu_ratio, in_turns, taken
from benchmarks.workload import EVALUATION
from tests.texts.hostile import UNITS, hostile
from tests.texts.ordinary import KINDS
from turnledger.ledger import (
    ANY,
    CustomEvent,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    Redactor,
    new_run_id,
)
from turnledger.ledger.redaction.search import WORTH

APPENDED = ("prose", "JSON rows", "source code", "logs", "hex", "base64")
# Characters of a text, how many texts, the goal.
SIZES = ((500, 60, 1.3), (16_000, 10, 2.0), (1_000_000, 1, 5.0))
# Of hostile text.
DOUBLED = (16_000, 32_000, 64_000, 128_000)
MOST_GROWTH, MOST_A_BYTE, MOST_PAUSE = 1.1, 20.0, 50.0
SEED = 20261118
REDACTOR = Redactor()


def measure(folder: Path) -> Iterator[Result]:
    REDACTOR.text("a" * 2 * WORTH)  # as a process that has searched so much already
    yield from _appends(folder)
    yield from _hostile()
    yield from _pauses()


# --- appends ---


def _appends(folder: Path) -> Iterator[Result]:
    """CPU time of appends with redaction, as a multiple of those without."""
    random = Random(SEED)
    for size, count, goal in SIZES:
        for kind in APPENDED:
            texts = [KINDS[kind](random, size) for _ in range(count)]
            yield _append(folder, f"{kind}, {_bytes(size)}", list(map(_message, texts)), goal)
        values = [json.loads(f"[{_whole_rows(random, size)}]") for _ in range(count)]
        events: list[Event] = [CustomEvent(kind="acme.rows", data=value) for value in values]
        yield _append(folder, f"JSON values, {_bytes(size)}", events, goal)


def _message(text: str) -> Event:
    return MessageAppended(
        message=InnerMessage(role="tool", content=text, evaluation_id=EVALUATION, sequence=1)
    )


def _whole_rows(random: Random, size: int) -> str:
    """JSON rows without the last, which may be cut off."""
    return ",".join(KINDS["JSON rows"](random, size + 400).split("\n")[:-1])


def _bytes(size: int) -> str:
    return f"{size / 1e3:g} kB" if size < 1_000_000 else f"{size / 1e6:g} MB"


def _append(folder: Path, name: str, events: Sequence[Event], goal: float) -> Result:
    with (
        TemporaryDirectory(dir=folder) as place,
        Ledger.open(Path(place) / "redacting.db", redactor=REDACTOR) as redacting,
        Ledger.open(Path(place) / "as-given.db", redactor=None) as as_given,
    ):

        def appending(ledger: Ledger) -> Callable[[], None]:
            run = new_run_id()

            def appends() -> None:
                for event in events:
                    ledger.append(run, event, ANY)

            return appends

        times = in_turns((appending(redacting), appending(as_given)), rounds=11)
    ours, theirs = (statistics.median(one.cpu for one in each) / len(events) for each in times)
    return Result(
        f"append with redaction against without, {name}",
        cpu_ratio(*times),
        goal,
        at_least=False,
        detail=f"{ours * 1e3:.3g} / {theirs * 1e3:.3g} ms an event",
    )


# --- hostile text ---


def _hostile() -> Iterator[Result]:
    """How the search grows with hostile text, and what it costs against prose."""
    text = REDACTOR.text
    plain = KINDS["prose"](Random(SEED), DOUBLED[-1])
    in_prose = min(one.cpu for one in _searches(text, plain, rounds=5)) / len(plain)
    growth, a_byte = {}, {}
    for name, unit in UNITS.items():
        growth[name], seconds = _growth(text, unit)
        a_byte[name] = seconds / DOUBLED[-1] / in_prose
    yield Result(
        f"growth exponent of the worst of {len(UNITS)} hostile texts",
        max(growth.values()),
        MOST_GROWTH,
        at_least=False,
        detail=_worst(growth, MOST_GROWTH),
    )
    yield Result(
        f"a byte of the worst of {len(UNITS)} hostile texts, against one of prose",
        max(a_byte.values()),
        MOST_A_BYTE,
        at_least=False,
        detail=f"{_worst(a_byte, MOST_A_BYTE)}; prose {in_prose * 1e9:.3g} ns",
    )


def _worst(figures: dict[str, float], goal: float) -> str:
    """The three highest, and how many miss the goal."""
    first = sorted(figures.items(), key=lambda one: -one[1])[:3]
    missed = sum(value > goal for value in figures.values())
    return f"{missed} above it: " + ", ".join(f"{name!r} {value:.3g}" for name, value in first)


def _searches(text: Callable[[str], str], given: str, rounds: int) -> list[Time]:
    return [taken(lambda: text(given)) for _ in range(rounds)]


def _growth(text: Callable[[str], str], unit: str) -> tuple[float, float]:
    """The slope of log time over log size, of minima; and the seconds of the largest.

    A slope above the goal is measured again and again: noise only makes a time longer.
    """
    given = [hostile(unit, size) for size in DOUBLED]
    least = [math.inf] * len(given)
    slope = math.inf
    for _ in range(4):
        for _ in range(2):
            for place, one in enumerate(given):
                # Of short texts, several at once: a clock's tick must not count.
                times = DOUBLED[-1] // DOUBLED[place]

                def search(one: str = one, times: int = times) -> None:
                    for _ in range(times):
                        text(one)

                least[place] = min(least[place], taken(search).cpu / times)
        slope = statistics.linear_regression(
            [math.log(size) for size in DOUBLED], [math.log(one) for one in least]
        ).slope
        if slope <= MOST_GROWTH:
            break
    return slope, least[-1]


# --- other threads ---


def _pauses() -> Iterator[Result]:
    """The longest that another thread waits while a text of 1 MB is searched."""
    random = Random(SEED)
    text = REDACTOR.text
    texts = {kind: KINDS[kind](random, 1_000_000) for kind in APPENDED}
    texts["pwd=x;"] = hostile("pwd=x;", 1_000_000)
    idle = _longest_pause(lambda: time.sleep(0.3))
    pauses = {
        kind: Figure.of([_longest_pause(partial(text, one)) * 1e3 for _ in range(5)])
        for kind, one in texts.items()
    }
    worst = max(pauses, key=lambda kind: pauses[kind].median)
    yield Result(
        "longest pause of another thread while 1 MB is redacted, ms of CPU time",
        pauses[worst],
        MOST_PAUSE,
        at_least=False,
        detail=", ".join(f"{kind} {one.median:.3g}" for kind, one in pauses.items())
        + f"; {idle * 1e3:.3g} while nothing is",
    )


def _longest_pause(work: Callable[[], object]) -> float:
    """Seconds for which a thread waits that wants to do something each millisecond.

    CPU time of the process: what other programs do on a busy machine does not count.
    """
    done, begun = Flag(), Flag()
    longest = 0.0

    def tick() -> None:
        nonlocal longest
        begun.set()
        last = time.process_time()
        while not done.is_set():
            time.sleep(0.001)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    thread = Thread(target=tick)
    thread.start()
    begun.wait()
    work()
    done.set()
    thread.join()
    return longest
