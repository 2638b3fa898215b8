"""Scenario: several processes open a ledger that is not there yet, and some are SIGKILLed at it.

Whoever lives has a ledger in the end, and can write to it; whoever looks finds it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.crash.book import unsound
from tests.crash.processes import Crew, Voice
from turnledger.ledger import ANY, CustomEvent, Draft, Ledger

OPENERS = 6
RUN = "00000000-0000-4000-8000-000000000004"


def run(crew: Crew, *, urls: Sequence[str], seed: int) -> dict[str, Any]:
    """For each ledger: half of those who open it are killed, and the others append an event."""
    random = Random(seed)
    found: list[str] = []
    kills = opened = 0
    for url in urls:
        openers = [crew.start(f"opener {me}", _open, url, me) for me in range(OPENERS)]
        said = crew.listen(random.uniform(0, 0.03))
        for victim in random.sample(openers, OPENERS // 2):
            said += [(victim, message) for message in crew.kill(victim)]
            openers.remove(victim)
            kills += 1
        said += crew.join(*openers)
        opened += len(said)
        checker = crew.start("checker", _check, url, [me for _, [_, me] in said])
        [(_, [_, problems])] = crew.join(checker)
        found += problems
    return {"problems": found, "kills": kills, "opened": opened}


def _draft(me: int) -> Draft:
    return Draft(CustomEvent(kind="crash.opened", data=me), f"{me + 1:032x}")


def _open(voice: Voice, url: str, me: int) -> None:
    with Ledger.open(url) as ledger:
        ledger.append(RUN, _draft(me), ANY)
        voice.say("opened", me)


def _check(voice: Voice, url: str, acknowledged: list[int]) -> None:
    with Ledger.open(url) as ledger:
        there = [record.event_id.int - 1 for record in ledger.read(RUN)]
        found = [f"verify_all: {problem}" for problem in ledger.verify_all().problems]
    found += [f"lost: {me} in {url}" for me in acknowledged if me not in there]
    found += [f"doubled: {there} in {url}"] if len(set(there)) < len(there) else []
    voice.say("found", found + unsound(url))
