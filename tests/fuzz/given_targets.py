"""What people hand in by the command: events as JSON, and seals that were kept elsewhere."""

from __future__ import annotations

import importlib.util
import json
import random
from base64 import b64encode
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fuzz.codec_targets import WORDS
from tests.fuzz.material import CountingClock, exports, named_id, payloads, populate
from tests.fuzz.mutating import as_json, mutate_bytes, mutate_json, written
from tests.fuzz.targets import Target, promise
from turnledger.adapters.cli.write.events_input import parse_events
from turnledger.ledger import ANY, InvalidInputError, Ledger, TurnledgerError
from turnledger.ledger.integrity.seal import Seal, make_seal, read_seal, seal_lines
from turnledger.ledger.integrity.signing import Signer
from turnledger.ledger.runs.record import Draft

_DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


class GivenEvents(Target):
    """What `append` reads: an event, an array of events, or a line for each."""

    name = "given-events"
    inputs = 25_000
    few = 2_500
    goal = 75_000

    def draw(self, dice: random.Random) -> bytes:
        events = [_given(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
        if dice.random() < 0.6:
            events[0] = mutate_json(dice, events[0], ("type", "data", "event_id", *WORDS[:9]))
        texts = [as_json(dice, event) for event in events]
        match dice.randrange(4):
            case 0:
                content = b"[" + b",".join(texts) + b"]"
            case 1:
                content = written(events[0], indent=2)
            case _:
                content = b"\n".join(texts) + b"\n"
        return mutate_bytes(dice, content) if dice.random() < 0.3 else content

    def check(self, given: bytes) -> bool:
        try:
            events = parse_events(given)
        except InvalidInputError:
            return False
        promise(len(events) > 0, "no events, and no error")
        with Ledger.open("memory://") as ledger:
            try:
                ledger.append(named_id("given"), events, ANY)
            except TurnledgerError:
                promise(next(ledger.tail(), None) is None, "refused, and yet there are records")
                return False
            wanted = [one.event if isinstance(one, Draft) else one for one in events]
            found = [record.event for record in ledger.tail()]
            promise(found == wanted, f"other events than were given: {found}")
        return True

    def shown(self, given: bytes) -> str:
        return f"base64 {b64encode(given).decode()}"


def _given(dice: random.Random) -> Any:
    tag, data = dice.choice(payloads())
    event = {"type": tag, "data": json.loads(data)}
    if dice.random() < 0.3:
        event["event_id"] = str(named_id(str(dice.randrange(5))))
    if dice.random() < 0.2:
        event["data"] = mutate_json(dice, event["data"], WORDS)
    return event


class Seals(Target):
    """A seal's file, for `verify --seal` and for the reader that stands by itself."""

    name = "seals"
    inputs = 35_000
    few = 2_500
    goal = 70_000

    def draw(self, dice: random.Random) -> bytes:
        content = dice.choice(_seals())
        match dice.randrange(5):
            case 0:
                return mutate_bytes(dice, content, [dice.choice(exports())])
            case 1:
                return _forged(dice, json.loads(content))
            case _:
                return as_json(dice, mutate_json(dice, json.loads(content), Seal.__struct_fields__))

    def check(self, given: bytes) -> bool:
        try:
            seal = read_seal(given)
        except TurnledgerError:
            return False
        promise(read_seal(b"".join(seal_lines(seal))) == seal, "it is written as another")
        # Whoever checks without this package comes to the same.
        reader = _reader()
        reader.checked(json.loads(given), None)
        list(reader.differences(json.loads(given), ()))
        return True

    def shown(self, given: bytes) -> str:
        return f"base64 {b64encode(given).decode()}"


def _forged(dice: random.Random, seal: Any) -> bytes:
    """Another list of runs, with a root that fits."""
    seal |= {"signed": False, "public_key": None, "signature": None}
    mutate_json(dice, seal["heads"], ())
    with suppress(TypeError, ValueError):
        seal["runs"] = len(seal["heads"])
        heads = [
            _reader().fields(run, version, bytes.fromhex(digest))
            for run, version, digest in seal["heads"]
        ]
        seal["root"] = sha256(b"".join(heads)).hexdigest()
    return as_json(dice, seal)


@cache
def _seals() -> tuple[bytes, ...]:
    with Ledger.open("memory://fuzz-seals", clock=CountingClock()) as ledger:
        populate(ledger)
        plain = make_seal(ledger, 1_767_323_045_000_000)
        signed = make_seal(ledger, 1_767_323_045_000_000, _signer())
    return b"".join(seal_lines(plain)), b"".join(seal_lines(signed))


def _signer() -> Signer:
    """One with the same key each time."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    return Signer(key.sign, key.public_key().public_bytes_raw())


@cache
def _reader() -> ModuleType:
    """docs/check_seal.py, which is no part of any package."""
    spec = importlib.util.spec_from_file_location("check_seal", _DOCS / "check_seal.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
