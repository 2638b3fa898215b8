"""Workflows: a function with the surface of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.agent import Crash
from tests.unit.runtime.steps.book import RUN, Book
from turnledger.ledger import InvalidInputError, RunCompleted, RunStarted
from turnledger.runtime import RecoveryError, ReplayDivergedError
from turnledger.runtime.steps import StepDefinitionError, step, workflow


@dataclass(frozen=True)
class Order:
    customer: str
    euros: int


@dataclass(frozen=True)
class Paid:
    receipts: tuple[str, ...]


def paying(book: Book, *, dies: bool = False, name: str = "orders/pay") -> Any:
    @step
    def pay(euros: int) -> str:
        book.done.append(euros)
        return f"r-{euros}"

    @workflow(name)
    def pay_order(order: Order) -> Paid:
        first = pay(order.euros)
        if dies:
            raise Crash
        return Paid((first, pay(order.euros + 1)))

    return pay_order


def paying_async(book: Book, *, dies: bool = False, name: str = "orders/pay") -> Any:
    @step
    async def pay(euros: int) -> str:
        book.done.append(euros)
        return f"r-{euros}"

    @workflow(name)
    async def pay_order(order: Order) -> Paid:
        first = await pay(order.euros)
        if dies:
            raise Crash
        return Paid((first, await pay(order.euros + 1)))

    return pay_order


ORDER = Order("acme", 5)
COLOURS = pytest.mark.parametrize("make", [paying, paying_async])


@COLOURS
def test_a_workflow_runs_and_its_name_input_and_output_are_recorded(book: Book, make: Any) -> None:
    """So that another process can call it again."""
    flow = make(book)
    result = flow.run(ORDER, ledger=book.ledger, run_id="order-17")
    assert (result.run_id, result.output) == (RUN, Paid(("r-5", "r-6")))
    started, completed = book.events()[0], book.events()[-1]
    assert isinstance(started, RunStarted)
    assert (started.agent, started.request) == ("orders/pay", {"customer": "acme", "euros": 5})
    assert isinstance(completed, RunCompleted)
    assert completed.output == {"receipts": ["r-5", "r-6"]}
    assert book.ledger.run(RUN).agent == "orders/pay"


@COLOURS
def test_recover_needs_the_run_only(book: Book, make: Any) -> None:
    """The input comes from the record, as its type; what is recorded is not done again."""
    with pytest.raises(Crash):
        make(book, dies=True).run(ORDER, ledger=book.ledger, run_id="order-17")
    assert book.did() == [5]
    flow = make(book)
    assert [info.run_id for info in flow.list_recoverable(ledger=book.ledger)] == [RUN]
    assert flow.recover("order-17", ledger=book.ledger).output == Paid(("r-5", "r-6"))
    assert book.did() == [6]
    assert flow.list_recoverable(ledger=book.ledger) == []


@COLOURS
def test_replay_performs_nothing(book: Book, make: Any) -> None:
    """Equal code is as recorded; a changed result is a divergence."""
    make(book).run(ORDER, ledger=book.ledger, run_id="order-17")
    book.did()
    assert make(book).replay("order-17", ledger=book.ledger).check().version == 7
    assert book.did() == []

    @workflow("orders/pay")
    def other(order: Order) -> Paid:
        return Paid(())

    found = other.replay("order-17", ledger=book.ledger)
    assert not found.ok
    with pytest.raises(ReplayDivergedError):
        found.check()


def test_a_run_of_another_workflow_is_refused(book: Book) -> None:
    """By name, in run, recover and replay."""
    with pytest.raises(Crash):
        paying(book, dies=True).run(ORDER, ledger=book.ledger, run_id="order-17")
    other = paying(book, name="orders/refund")
    for call in (other.recover, other.replay):
        with pytest.raises(RecoveryError, match="orders/pay"):
            call("order-17", ledger=book.ledger)
    with pytest.raises(RecoveryError, match="orders/pay"):
        other.run(ORDER, ledger=book.ledger, run_id="order-17")
    with pytest.raises(RecoveryError, match="another input"):
        paying(book).run(Order("acme", 6), ledger=book.ledger, run_id="order-17")
    assert book.did() == [5]


def test_a_run_that_gets_nowhere_is_parked(book: Book) -> None:
    """With max_attempts, as recover --all has it."""

    @workflow("orders/stuck")
    def stuck(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="x"):
        stuck.run("x", ledger=book.ledger, run_id="order-17")
    for _ in range(2):
        with pytest.raises(ValueError, match="x"):
            stuck.recover("order-17", ledger=book.ledger, max_attempts=2)
    with pytest.raises(RecoveryError, match="parked"):
        stuck.recover("order-17", ledger=book.ledger, max_attempts=2)
    assert book.status == "parked"


def test_inputs_and_functions_that_can_not_be_recorded_are_refused(book: Book) -> None:
    """Before a run is begun."""
    with pytest.raises(InvalidInputError, match="euros"):
        paying(book).run({"customer": "acme"}, ledger=book.ledger)
    with pytest.raises(StepDefinitionError, match="one input"):
        workflow("a/b")(lambda a, b: None)  # type: ignore[arg-type, misc]
    with pytest.raises(InvalidInputError, match="name"):
        workflow("a b")
    assert list(book.ledger.runs()) == []


def test_consent_is_for_one_attempt(book: Book) -> None:
    """retry_in_doubt performs a step in doubt again; the next crash needs consent again."""
    from turnledger.runtime import DecisionRequiredError

    @step(on_interrupt="ask")
    def pay(euros: int) -> None:
        book.done.append(euros)
        raise Crash

    @workflow("orders/pay")
    def flow(euros: int) -> None:
        pay(euros)

    with pytest.raises(Crash):
        flow.run(5, ledger=book.ledger, run_id="order-17")
    with pytest.raises(DecisionRequiredError):
        flow.recover("order-17", ledger=book.ledger)
    with pytest.raises(Crash):
        flow.recover("order-17", ledger=book.ledger, retry_in_doubt=True, decided_by="Ada")
    with pytest.raises(DecisionRequiredError):
        flow.recover("order-17", ledger=book.ledger)
    assert book.did() == [5, 5]
