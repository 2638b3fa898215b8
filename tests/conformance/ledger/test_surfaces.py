"""Surfaces: all have what LedgerLike lists, and nothing else is tested through them."""

from __future__ import annotations

import inspect

import pytest

from tests.conformance.ledger_like import METHODS, LedgerLike
from tests.conformance.samples import message
from tests.conformance.surfaces import Surface
from tests.secret_samples import samples
from turnledger.ledger import NEW, Ledger, RedactedPart, Redactor, SecretPattern, new_run_id

# For those who have the store: how a damaged index is listed.
LEFT_OUT = {"on_damage"}


def test_the_surface_is_a_part_of_a_ledgers() -> None:
    """Each method has the parameters and defaults that it has in Ledger."""
    for name in METHODS:
        listed = inspect.signature(getattr(LedgerLike, name)).parameters
        real = inspect.signature(getattr(Ledger, name)).parameters
        assert {n: p.default for n, p in listed.items()} == {
            n: p.default for n, p in real.items() if n not in LEFT_OUT
        }, name


def test_a_ledger_has_the_whole_surface(ledger: LedgerLike) -> None:
    """Every method is there, whatever is beneath it."""
    assert all(callable(getattr(ledger, name)) for name in METHODS)


@pytest.mark.parametrize("own", [False, True], ids=["standard", "own rules"])
def test_secrets_are_gone_from_all_that_comes_back(surface: Surface, own: bool) -> None:
    """From the result of the append, from every reader and from the names of workers."""
    rules = Redactor(formats=[], patterns=[SecretPattern("acme", "ACME-[0-9]{4}")])
    ledger = surface.open(redactor=rules) if own else surface.open()
    secret = "ACME-1234" if own else samples(1, 1, ["github-token"])[0].text
    run = new_run_id()
    appended = ledger.append(run, message(f"use {secret} for it"), NEW)
    claim = ledger.claim(run, worker=secret)
    read = [*appended.records, *ledger.read(run), *ledger.tail(), ledger.record(run, 2)]
    texts = [*(record.data for record in read), *(repr(record.event) for record in read)]
    texts += [claim.worker, str(ledger.worker_of(run))]
    assert not [text for text in texts if secret in text]
    assert all("[redacted: " in text for text in texts)
    found = RedactedPart("message.content", ("acme" if own else "github-token",))
    assert appended.redacted == {1: (found,)}
    assert ledger.append(new_run_id(), message("use none"), NEW).redacted == {}
