"""Scene of the attack on recovery: a ledger with interrupted runs, and a bank that they pay at.

All of it follows from a seed: what the agents are asked, where they are interrupted (in a tool,
in a model call, before and after a commit), who forks or continues whom, what a person decided.
The bank is outside of the ledger and counts each effect by run and call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID, uuid5

from tests.agent import Crash, ScriptedLoop, calls, says, task
from turnledger.ledger import (
    ANY,
    ForkPointError,
    Ledger,
    ToolCallDecided,
    ToolCallStarted,
    TurnledgerError,
)
from turnledger.runtime import Prompt, RecoveryConfig, Reply, Session, Tool, ToolContext
from turnledger.runtime.recovery.run_reader import RunReader

IDS = UUID("7b0c2f6e-2d3b-4a57-9a40-5d0c7c1e9f10")
POLICIES = ("ask", "fail", "retry")
# Of a tool with one of these policies no effect may happen twice, unless a person decided so.
ONCE = ("ask", "fail")
# Calls by run and id, and how often their effect happened.
Bank = Counter[tuple[str, str]]


class SeededClock:
    """Times that grow by a millisecond, and ids that are no other clock's."""

    def __init__(self, name: str, start: int = 1_767_323_045_000_000) -> None:
        self._name = name
        self._now = start
        self._made = 0

    def micros(self) -> int:
        self._now += 1000
        return self._now

    def new_id(self) -> str:
        self._made += 1
        return str(uuid5(IDS, f"{self._name} {self._made}"))


@dataclass(frozen=True)
class Order:
    """What an agent is asked: for each turn the tools to call, as "ask,fail; retry"."""

    title: str
    steps: str


@dataclass(frozen=True)
class Amount:
    n: int


@dataclass(frozen=True)
class Paid:
    call: str


class Notebook:
    """A resource whose state lies in blobs."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.lines: list[str] = []

    def snapshot(self) -> Any:
        return {"title": self._title, "lines": self.lines}

    def restore(self, snapshot: Any) -> None:
        self.lines = list(snapshot["lines"])


class Payer(ScriptedLoop[Order, str]):
    """An agent whose tools pay at the bank. It dies when its fuse has burnt down; 0 never does.

    A fuse below 0 burns only where a tool has paid and not returned, which puts it in doubt.
    """

    def __init__(self, ledger: Ledger, bank: Bank, title: str = "", fuse: int = 0) -> None:
        self._bank = bank
        self._fuse = abs(fuse)
        self._burns_anywhere = fuse > 0
        self._title = title
        self.run = ""
        self.session: Session | None = None
        super().__init__(
            self._reply,
            ledger=ledger,
            recovery=RecoveryConfig(max_attempts=50),
            resources=lambda: {"notes": Notebook(title)},
            clock=ledger.clock,
        )
        if fuse:
            self._lay_fuse(ledger)

    def point(self, error: type[BaseException] = Crash, *, paid: bool = False) -> None:
        """A moment at which the process may die, or something else go wrong."""
        self._fuse -= paid or self._burns_anywhere
        if self._fuse == 0 and (paid or self._burns_anywhere):
            raise error

    def _lay_fuse(self, ledger: Ledger) -> None:
        whole = type(ledger).append

        def append(*args: Any, **kwargs: Any) -> Any:
            self.point()
            done = whole(ledger, *args, **kwargs)
            self.point()
            return done

        ledger.append = append  # type: ignore[method-assign]

    def create_session(self) -> Session:
        if self.session is None:
            self.session = Session(bus=self._bus, tags={"title": self._title}, clock=self._clock)
            self.session[Paid].seed([])
        return self.session

    def create_prompt(self, request: Order) -> Prompt[Any]:
        tools = [
            Tool[Amount, Any](
                name=policy, description="Pay.", handler=self._pay, on_interrupt=policy
            )
            for policy in POLICIES
        ]
        return task(request, "Do ${title}: ${steps}.", tools, name="faults/attack")

    def _reply(self, request: Any) -> Reply:
        self.point()
        asked = re.search(r"Do (\w+): ([a-z,; ]*)\.", request.system)
        title, steps = asked.groups() if asked is not None else ("", "")
        turns = [turn for turn in steps.split("; ") if turn]
        if request.turn > len(turns):
            return says(f"Did {title}.")
        names = turns[request.turn - 1].split(",")
        made = [(f"{title}.{request.turn}.{n}", name, '{"n": 1}') for n, name in enumerate(names)]
        # Every other time an error of the provider: the run has failed then, and is recovered.
        self.point(Crash if len(title) % 2 else ConnectionError)
        return calls(*made)

    def _pay(self, params: Amount, *, context: ToolContext) -> str:
        self.point()
        self._bank[self.run, f"{context.call_id}/{_policy(context)}"] += params.n
        context.resources["notes"].lines.append(context.call_id)
        context.session[Paid].append(Paid(context.call_id))
        self.point(paid=True)
        return "Paid."

    # --- what is done with a run ---

    def begin(self, run: UUID, order: Order) -> None:
        self.run = str(run)
        self.execute(order, run_id=run)

    def resume(self, run: UUID | str) -> None:
        self.run, self.session = str(run), None
        self.recover(run)


def _policy(context: ToolContext) -> str:
    """The policy of the tool that runs, as the model asked for it."""
    assert context.prompt is not None
    (order,) = context.prompt.params
    turn, place = context.call_id.split(".")[1:]
    found: str = order.steps.split("; ")[int(turn) - 1].split(",")[int(place)]
    return found


# --- the scene -----------------------------------------------------------------------


@dataclass
class Run:
    """A run of the scene: whose child it is, and what must not be done twice in it."""

    id: UUID
    order: Order
    parent: Run | None = None
    at: int = 0
    kind: str = "run"
    # Calls that were started in a fork's parent before it: they are not the fork's to repeat.
    inherited: set[str] = field(default_factory=set)
    # How often a person said that a call is to run again.
    retries: Counter[str] = field(default_factory=Counter)

    def may_pay(self, call: str) -> int:
        """How often the effect of a call may happen in this run."""
        if not call.startswith(f"{self.order.title}."):
            return 0
        return (call not in self.inherited) + self.retries[call]

    def shares(self) -> Iterator[tuple[str, int | None]]:
        """The runs that this one reads, each up to a version; None is the end."""
        run: Run | None = self
        until: int | None = None
        while run is not None:
            yield str(run.id), until
            until = run.at if until is None else min(until, run.at)
            run = run.parent


class Scene:
    """The runs, made one after the other in a ledger."""

    def __init__(self, seed: int, reopened: Callable[[Any], Ledger]) -> None:
        self.runs: list[Run] = []
        self.bank: Bank = Counter()
        self._seed = seed
        self._random = Random(f"scene {seed}")
        self._clock = SeededClock("scene")
        self._reopened = reopened
        for number in range(self._random.randint(4, 6)):
            self._add(number)

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        with self._reopened(self._clock) as ledger:
            yield ledger

    def _add(self, number: int) -> None:
        dice = self._random
        run = Run(uuid5(IDS, f"{self._seed} {number}"), self._order(number))
        kind = dice.choice(("run", "run", "fork", "continuation")) if self.runs else "run"
        if kind == "fork":
            self._fork(run, dice.choice(self.runs))
        elif kind == "continuation":
            self._continue(run, number)
        else:
            self._begin(run, self._fuse())
        self.runs.append(run)
        for _ in range(dice.choice((0, 0, 0, 1, 2))):
            self._decide(run, 0.5)
            self._resume(run)
        self._decide(run, 0.3)
        if dice.random() < 0.05:
            with self._ledger() as ledger:
                Payer(ledger, self.bank).abandon(run.id)

    def _order(self, number: int) -> Order:
        dice = self._random
        turns = [
            ",".join(dice.choice((*POLICIES, *ONCE)) for _ in range(dice.choice((1, 1, 2))))
            for _ in range(dice.randint(1, 3))
        ]
        return Order(f"o{number}" + "x" * dice.randint(0, 1), "; ".join(turns))

    def _fuse(self) -> int:
        burns = self._random.choices(("never", "anywhere", "in a tool"), (1, 4, 5))
        if burns == ["never"]:
            return 0
        return self._random.randint(2, 13) if burns == ["anywhere"] else -self._random.randint(1, 3)

    def _begin(self, run: Run, fuse: int) -> None:
        with self._ledger() as ledger, suppress(Crash, TurnledgerError):
            Payer(ledger, self.bank, run.order.title, fuse).begin(run.id, run.order)

    def _resume(self, run: Run) -> None:
        with self._ledger() as ledger, suppress(Crash, TurnledgerError):
            Payer(ledger, self.bank, run.order.title, self._fuse()).resume(run.id)

    def _fork(self, run: Run, parent: Run) -> None:
        with self._ledger() as ledger:
            low = ledger.run(parent.id).parent_version
            head = ledger.head(parent.id)
            if head < low + 3:
                self._begin(run, self._fuse())
                return
            while True:
                with suppress(ForkPointError):
                    at = self._random.randint(low + 2, head)
                    ledger.fork(parent.id, at, child=run.id)
                    break
            begun = (record.event for record in ledger.read(parent.id, until=at))
            run.inherited = {one.call_id for one in begun if isinstance(one, ToolCallStarted)}
        run.order, run.parent, run.at, run.kind = parent.order, parent, at, "fork"

    def _continue(self, run: Run, number: int) -> None:
        """Run an order to its end, and another with the same session, which is interrupted."""
        first = Run(uuid5(IDS, f"{self._seed} {number} first"), self._order(number + 50))
        self.runs.append(first)
        with self._ledger() as ledger:
            payer = Payer(ledger, self.bank, first.order.title)
            payer.begin(first.id, first.order)
            run.parent, run.at, run.kind = first, ledger.head(first.id), "continuation"
            session = payer.session
            with suppress(Crash, TurnledgerError):
                payer = Payer(ledger, self.bank, run.order.title, self._fuse())
                payer.session = session
                payer.begin(run.id, run.order)

    def _decide(self, run: Run, chance: float) -> None:
        dice = self._random
        with self._ledger() as ledger:
            if ledger.run(run.id).status in ("completed", "abandoned"):
                return
            for call in RunReader(ledger, run.id).in_doubt():
                if dice.random() < chance:
                    what: Any = dice.choice(("retry", "completed", "failed"))
                    decision = ToolCallDecided(call_id=call.call_id, decision=what)
                    ledger.append(run.id, decision, ANY)
                    run.retries[call.call_id] += what == "retry"


def repeated(runs: Sequence[Run], bank: Bank) -> list[str]:
    """The effects that happened more often than they may."""
    found = []
    known = {str(run.id): run for run in runs}
    for (run, named), count in bank.items():
        call, policy = named.split("/")
        most = known[run].may_pay(call) if run in known else 0
        if policy in ONCE and count > most:
            found.append(f"call {call} ({policy}) of run {run} paid {count} times, {most} allowed")
    return found
