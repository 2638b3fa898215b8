"""Scenario: processes follow the whole ledger while eight others append to it.

The last event of all is written when every appender has ended, so a follower that has
come to it must have seen everything before it. Some appenders are killed on the way,
and one follower is killed again and again and goes on from the last position it told.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from tests.crash.processes import Child, Crew, Message, Voice
from tests.crash.worker import new_id
from turnledger.ledger import ANY, CustomEvent, Ledger

APPENDERS = 8
END = "crash.end"
# A follower's (start, from): after so many acknowledged appends, from such a position.
FOLLOWERS = (
    (0, "the start"),
    (0, "the start"),
    (100, "the start"),
    (200, "the last"),
    (350, "half"),
)


def run(crew: Crew, *, url: str, seed: int, appends: int) -> dict[str, Any]:
    """What each follower saw, as [after, [[position, run, version, event id] ...]]."""
    random = Random(seed)
    shared = [new_id(random) for _ in range(3)]
    crew.join(crew.start("opener", _open, url))
    scene = _Scene(crew, url, random)
    scene.restart_follower()
    for number in range(APPENDERS):
        scene.start_appender(seed, number, shared, appends)
    while scene.appenders:
        scene.listen()
    crew.join(crew.start("closer", _close, url))
    while not scene.over:
        scene.listen()
    return {
        "followers": [[scene.after[child], scene.seen[child]] for child in scene.seen],
        "killed follower": scene.survivor_seen,
        "restarts": scene.restarts,
        "kills": scene.kills,
        "acknowledged": scene.acknowledged,
    }


class _Scene:
    def __init__(self, crew: Crew, url: str, random: Random) -> None:
        self._crew = crew
        self._url = url
        self._random = random
        self._to_start = list(FOLLOWERS)
        self._positions = [0]
        self._survivor: Child
        self._dies_at = 0
        self._next_kill = 100
        self.appenders: dict[Child, tuple[Any, ...]] = {}
        self.seen: dict[Child, list[Message]] = {}
        self.after: dict[Child, int] = {}
        self.at_end: set[Child] = set()
        self.survivor_seen: list[Message] = []
        self.restarts = self.kills = 0
        self.acknowledged: list[str] = []

    @property
    def over(self) -> bool:
        return {*self.seen, self._survivor} <= self.at_end

    def start_appender(self, *args: Any) -> None:
        self.appenders[self._crew.start(f"appender {args[1]}", _append, self._url, *args)] = args

    def restart_follower(self) -> None:
        """The one that is killed goes on after the last record that it told."""
        after = self.survivor_seen[-1][0] if self.survivor_seen else 0
        self._survivor = self._crew.start("survivor", _follow, self._url, after, 7)
        self._dies_at = len(self.survivor_seen) + self._random.randint(1, 400)

    def listen(self) -> None:
        for child, message in self._crew.listen():
            self._note(child, message)
        for child in [child for child in self.appenders if child.ended]:
            for _, message in self._crew.join(child):
                self._note(child, message)
            del self.appenders[child]
        self._start_followers()
        if self.appenders and len(self.acknowledged) >= self._next_kill:
            self._kill_appender()
        if self._survivor not in self.at_end and len(self.survivor_seen) >= self._dies_at:
            self._kill_follower()

    def _note(self, child: Child, message: Message) -> None:
        match message:
            case ["appended", ids, position]:
                self.acknowledged += ids
                self._positions.append(position)
            case ["saw", records]:
                self.seen.get(child, self.survivor_seen).extend(records)
            case ["end"]:
                self.at_end.add(child)

    def _start_followers(self) -> None:
        while self._to_start and len(self._positions) > self._to_start[0][0]:
            _, where = self._to_start.pop(0)
            middle = self._positions[len(self._positions) // 2]
            after = {"the start": 0, "half": middle, "the last": self._positions[-1]}[where]
            # Pages of different sizes: the borders between them fall everywhere.
            page = self._random.choice((1, 3, 50, 500))
            child = self._crew.start(f"follower {len(self.seen)}", _follow, self._url, after, page)
            self.seen[child], self.after[child] = [], after

    def _kill_follower(self) -> None:
        for message in self._crew.kill(self._survivor):
            self._note(self._survivor, message)
        if self._survivor not in self.at_end:
            self.restarts += 1
            self.restart_follower()

    def _kill_appender(self) -> None:
        self._next_kill += 250
        victim = self._random.choice(list(self.appenders))
        seed, number, shared, appends = self.appenders.pop(victim)
        for message in self._crew.kill(victim):
            self._note(victim, message)
        self.kills += 1
        self.start_appender(f"{seed}+", number, shared, appends // 2)


def _open(voice: Voice, url: str) -> None:
    Ledger.open(url).close()


def _append(
    voice: Voice, url: str, seed: int, number: int, shared: list[str], appends: int
) -> None:
    random = Random(f"{seed}/{number}")
    own = new_id(random)
    with Ledger.open(url) as ledger:
        for _ in range(appends):
            events = [
                CustomEvent(kind="crash.fact", data=number)
                for _ in range(random.choice((1, 1, 1, 2, 30)))
            ]
            done = ledger.append(random.choice((own, *shared)), events, ANY)
            ids = [str(record.event_id) for record in done.records]
            voice.say("appended", ids, done.position)


def _close(voice: Voice, url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.append(UUID(int=1), CustomEvent(kind=END), ANY)


def _follow(voice: Voice, url: str, after: int, page_size: int) -> None:
    with Ledger.open(url) as ledger:
        for record in ledger.tail(after=after, follow=True, page_size=page_size):
            voice.say(
                "saw",
                [[record.position, str(record.run_id), record.version, str(record.event_id)]],
            )
            if isinstance(record.event, CustomEvent) and record.event.kind == END:
                voice.say("end")
                return
