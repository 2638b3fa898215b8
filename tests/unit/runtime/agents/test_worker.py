"""`enqueue` and `Worker`: requests that wait in a ledger, and what a worker makes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

import turnledger
from tests.agent import Crash, calls, says
from turnledger import Agent, tool
from turnledger.ledger import (
    ANY,
    InvalidInputError,
    Ledger,
    RunFailed,
    RunParked,
    RunStarted,
    StoreUnavailableError,
    SystemClock,
    new_run_id,
)
from turnledger.projections import state_at
from turnledger.runtime import PromptMismatch, Reply, Request
from turnledger.runtime.agents.worker import Worker
from turnledger.runtime.journal.heartbeat import LeaseHeartbeat
from turnledger.runtime.steps import Workflow

DAY = timedelta(days=1)


def answers(request: Request) -> Reply:
    """Calls `count` once, then answers."""
    return calls(("c1", "count", '{"n": 2}')) if request.turn == 1 else says("Done.")


COUNTED: list[int] = []


@tool
def count(n: int) -> str:
    """Count."""
    COUNTED.append(n)
    return "counted"


@tool
async def count_async(n: int) -> str:
    """Count."""
    await asyncio.sleep(0)
    return "counted"


def an_agent(name: str = "tests/counter", text: str = "Count.") -> Agent[str, str]:
    return Agent(name, model=answers, instructions=text, tools=[count])


@turnledger.workflow("tests/double")
def double(n: int) -> int:
    return n * 2


class Clocked(SystemClock):
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def micros(self) -> int:
        return super().micros() + self.ahead // timedelta(microseconds=1)


@dataclass
class Book:
    """A ledger in memory, and what workers said about it."""

    ledger: Ledger
    said: list[str]

    def work(self, *apps: Agent[str, str] | Workflow[int, int], runs: Sequence[UUID] = ()) -> None:
        """Have a worker work until none of the runs is running."""

        def are_over() -> bool:
            return all(self.ledger.run(run).status != "running" for run in runs)

        asyncio.run(self._work(apps, are_over))

    async def _work(
        self, apps: Sequence[Agent[str, str] | Workflow[int, int]], until: Callable[[], bool]
    ) -> None:
        jobs = list(apps)
        worker = Worker(self.ledger, jobs, concurrency=2, tell=self.said.append)
        task = asyncio.create_task(worker.work())
        while not until():  # pytest-timeout ends it
            assert not task.done(), task
            await asyncio.sleep(0.005)
        worker.stop()
        # So that the worker's look into the queue need not be waited for.
        self.ledger.append(new_run_id(), RunStarted(), ANY)
        await task

    def status(self, run: UUID) -> str:
        return self.ledger.run(run).status


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    """An empty ledger; a worker's look into its queue is short."""
    monkeypatch.setattr("turnledger.runtime.agents.worker.WAIT", 0.05)
    COUNTED.clear()
    return Book(Ledger.open("memory://"), [])


# --- requests ---


def test_a_request_is_what_a_run_begins_with(book: Book) -> None:
    """One event, with the input, the limits and the tags; the model is not asked."""
    agent = Agent("tests/never", model=lambda request: says("x"), instructions="I.", max_turns=7)
    run = agent.enqueue("hello", ledger=book.ledger, tags={"customer": "acme"})
    (record,) = book.ledger.read(run)
    started = record.event
    assert isinstance(started, RunStarted)
    assert (started.request, started.agent, started.max_turns) == ("hello", "tests/never", 7)
    assert started.request_id is not None
    assert book.ledger.run(run).epoch == 0
    assert book.ledger.run(run).tags == {"customer": "acme"}


def test_an_input_of_another_type_is_refused(book: Book) -> None:
    """Before anything is written."""
    with pytest.raises(InvalidInputError):
        an_agent().enqueue(7, ledger=book.ledger)  # type: ignore[arg-type]
    assert not list(book.ledger.runs())


def test_a_requested_run_comes_to_the_outcome_of_one_that_is_run(book: Book) -> None:
    """It is a resume from its first event, and its replay agrees."""
    agent = an_agent()
    run, direct = agent.enqueue("go", ledger=book.ledger), agent.run("go", ledger=book.ledger)
    book.work(agent, runs=[run])
    assert book.status(run) == "completed"
    one, other = (state_at(book.ledger, id_) for id_ in (run, direct.run_id))
    assert one.outcome_digest == other.outcome_digest
    agent.replay(run, ledger=book.ledger).check()
    assert COUNTED == [2, 2]


def test_requests_without_the_code_run_under_the_agents_limits(book: Book) -> None:
    """Of agents and of workflows; `max_turns` is the agent's."""
    agent = Agent("tests/loops", model=answers, instructions="I.", tools=[count], max_turns=1)
    run, sum_ = book.ledger.enqueue("tests/loops", "go"), book.ledger.enqueue("tests/double", 21)
    book.work(agent, double, runs=[run, sum_])
    assert book.status(run) == "failed"
    assert any("max_turns is 1" in line for line in book.said)
    assert book.status(sum_) == "completed"
    assert double.recover(sum_, ledger=book.ledger).output == 42
    agent.replay(run, ledger=book.ledger).check()


def test_workflows_are_requested_and_taken(book: Book) -> None:
    """By the same mechanism."""
    run = double.enqueue(4, ledger=book.ledger)
    book.work(double, runs=[run])
    assert book.status(run) == "completed"
    assert double.recover(run, ledger=book.ledger).output == 8


# --- what becomes of runs ---


def test_a_request_does_not_age_and_a_run_does(book: Book) -> None:
    """A request of ten days ago is run; one that was begun then is left to a person."""
    clock = Clocked()
    book.ledger = Ledger.open("memory://", clock=clock)
    agent = an_agent()
    run = agent.enqueue("go", ledger=book.ledger)

    def crashes(request: Request) -> Reply:
        raise Crash

    crashing = Agent("tests/counter", model=crashes, instructions="Count.", tools=[count])
    with pytest.raises(Crash):
        crashing.run("go", ledger=book.ledger)
    (begun,) = [info.run_id for info in book.ledger.runs() if info.run_id != run]
    clock.ahead = 10 * DAY
    book.work(agent, runs=[run, begun])
    assert (book.status(run), book.status(begun)) == ("completed", "failed")
    assert any(f"{begun} failed: CheckpointExpired" in line for line in book.said)


@pytest.mark.parametrize("early", [False, True], ids=["in the model call", "before any commit"])
def test_a_request_that_kills_its_workers_is_parked(book: Book, early: bool) -> None:
    """After max_attempts, wherever its workers die."""

    def dies(*_: object) -> Reply:
        raise Crash

    agent = Agent(
        "tests/killer",
        model=answers if early else dies,
        instructions=(lambda text, session: dies()) if early else "I.",  # type: ignore[arg-type, return-value]
        tools=[count],
    )
    run = agent.enqueue("go", ledger=book.ledger)
    for _ in range(3):
        claim = book.ledger.claim_next(["tests/killer"])
        assert claim is not None
        with pytest.raises(Crash):
            agent.take(LeaseHeartbeat(claim), book.ledger)
        claim.release()
    assert book.status(run) == "running"
    book.work(agent, runs=[run])
    assert book.status(run) == "parked"
    last = [*book.ledger.read(run)][-1].event
    assert isinstance(last, RunParked)
    assert last.attempts == 3


def test_a_changed_prompt_fails_the_run_and_a_person_goes_on(book: Book) -> None:
    """No worker takes it for ever; `recover` has the choice as ever."""

    def crashes(request: Request) -> Reply:
        raise Crash

    before = Agent("tests/counter", model=crashes, instructions="Old.", tools=[count])
    with pytest.raises(Crash):
        before.run("go", ledger=book.ledger)
    (info,) = book.ledger.runs()
    agent = an_agent(text="New.")
    book.work(agent, runs=[info.run_id])
    failed = [*book.ledger.read(info.run_id)][-1].event
    assert isinstance(failed, RunFailed)
    assert failed.error_type == PromptMismatch.__name__
    assert agent.recover(info.run_id, ledger=book.ledger, prompt="recorded").text == "Done."


def test_an_input_that_the_agent_does_not_take_fails_the_run(book: Book) -> None:
    """It is the request that is wrong: no worker tries it again."""
    agent = an_agent()
    run = book.ledger.enqueue(agent.name, {"no": "text"})
    good = book.ledger.enqueue(agent.name, "text")
    book.work(agent, runs=[run, good])
    assert (book.status(run), book.status(good)) == ("failed", "completed")


def test_a_run_that_asks_waits_and_goes_on_once_it_is_decided(book: Book) -> None:
    """The worker takes the others meanwhile."""

    @tool(needs_approval=True)
    def count(n: int) -> str:
        """Count."""
        COUNTED.append(n)
        return "counted"

    agent = Agent("tests/asks", model=answers, instructions="I.", tools=[count])
    run = agent.enqueue("go", ledger=book.ledger)
    book.work(agent, runs=[run])
    assert (book.status(run), COUNTED) == ("waiting", [])
    agent.approve(run, "c1", ledger=book.ledger)
    book.work(agent, runs=[run])
    assert (book.status(run), COUNTED) == ("completed", [2])


def test_async_tools_run_on_the_workers_loop(book: Book) -> None:
    """As `arun` has it."""
    agent = Agent(
        "tests/async",
        model=lambda r: calls(("c1", "count_async", '{"n": 2}')) if r.turn == 1 else says("Done."),
        instructions="I.",
        tools=[count_async],
    )
    run = agent.enqueue("go", ledger=book.ledger)
    book.work(agent, runs=[run])
    assert book.status(run) == "completed"


# --- the worker ---


def test_a_ledger_that_is_away_is_named_once_and_waited_for(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on when it is back."""
    agent, real, failures = an_agent(), book.ledger.claim_next, [None] * 3
    run = agent.enqueue("go", ledger=book.ledger)

    def claim_next(*args: object, **options: object) -> object:
        if failures:
            failures.pop()
            raise StoreUnavailableError("It is away.")
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(book.ledger, "claim_next", claim_next)
    monkeypatch.setattr("turnledger.runtime.agents.worker.SHORTEST_PAUSE", 0.001)
    book.work(agent, runs=[run])
    assert len([line for line in book.said if "can't be reached" in line]) == 1
    assert len([line for line in book.said if "reached again" in line]) == 1


def test_stopping_finishes_what_was_begun_and_stopping_twice_releases_it(book: Book) -> None:
    """A drained run is completed; one that was stopped is resumable at once."""

    async def drained(*, twice: bool) -> UUID:
        under_way, go_on = asyncio.Event(), asyncio.Event()

        @tool
        async def count(n: int) -> str:
            """Count."""
            under_way.set()
            await go_on.wait()
            return "counted"

        agent = Agent("tests/slow", model=answers, instructions="I.", tools=[count])
        run = agent.enqueue("go", ledger=book.ledger)
        worker = Worker(book.ledger, [agent], tell=book.said.append)
        task = asyncio.create_task(worker.work())
        await under_way.wait()
        later = agent.enqueue("later", ledger=book.ledger)
        worker.stop()
        if twice:
            worker.stop()
        else:
            go_on.set()
        await task
        assert book.ledger.run(later).epoch == 0
        book.ledger.append(later, RunParked(reason="not for the next one"), ANY)
        return run

    finished, stopped = asyncio.run(drained(twice=False)), asyncio.run(drained(twice=True))
    assert (book.status(finished), book.status(stopped)) == ("completed", "running")
    assert book.ledger.worker_of(stopped) is None


def test_a_worker_without_agents_is_refused(book: Book) -> None:
    """Also one whose loop has no name: it would take runs of nobody."""
    for wrong in ({"jobs": []}, {"concurrency": 0}, {"lease": timedelta(0)}):
        with pytest.raises(InvalidInputError):
            Worker(book.ledger, **{"jobs": [an_agent()], **wrong})  # type: ignore[arg-type]
