"""A search for keys that redaction misses: hidden in random text, in any way of writing them."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import pytest

from tests.secret_samples import MAKERS, samples
from tests.soaking import Search
from tests.texts.ordinary import KINDS
from tests.texts.spellings import SPELLINGS, is_left
from turnledger.ledger import Redactor

REDACTOR = Redactor()
# Of a thousand keys.
MISSES = 5
# Of rounds, how many are long: a search in pieces must find what is across a border of two.
LONG = 0.01
# In a round of the long search.
EACH = 500


@cache
def _around(kind: str) -> str:
    """Text from which pieces are cut."""
    return KINDS[kind](Random(7), 400_000)


def hide(random: Random) -> tuple[str, list[tuple[str, str, str]]]:
    """A text with some keys in it, and of each its format, its way and the secret."""
    formats = random.sample(list(MAKERS), random.randint(1, 4))
    is_long = random.random() < LONG
    size = random.randint(70_000, 300_000) if is_long else random.choice((0, 100, 500, 4_000))
    around = _around(random.choice(list(KINDS)))
    start = random.randrange(len(around) - size)
    text = around[start : start + size]
    hidden, places = [], []
    for name in formats:
        maker = random.randrange(len(MAKERS[name]))
        one = samples(random.getrandbits(60), maker + 1, [name])[maker]
        way = random.choice(list(SPELLINGS))
        spelled = random.choice(SPELLINGS[way])(random, one)
        hidden.append((name, way, one.secret))
        # Between two words or lines, and in a long text now and then across a power of two.
        place = random.randint(0, size)
        if is_long and random.random() < 0.5:
            place = min(2 ** random.randint(12, 18) - random.randint(0, len(spelled)), size)
        if " " in text:
            place = text.rfind(" ", 0, max(place, 0)) + 1
        mark = "\n" if "\n" in spelled else random.choice((" ", "\n", "\r\n", "\t"))
        places.append((max(place, 0), f"{mark}{spelled}{mark}"))
    # The last first: a key must not come into the middle of another.
    for place, spelled in sorted(places, reverse=True):
        text = text[:place] + spelled + text[place:]
    if random.random() < 0.2:
        text = json.dumps({"stdout": text, "exit": 0})
    return text, hidden


def search(seed: int, texts: int) -> tuple[int, list[str]]:
    """How many keys were hidden, and those that were left."""
    random = Random(seed)
    keys, left = 0, []
    for _ in range(texts):
        text, hidden = hide(random)
        found = REDACTOR.text(text)
        keys += len(hidden)
        for name, way, secret in hidden:
            if is_left(secret, found):
                left.append(f"{name}, {way}: {secret[:40]!r} in {len(text)} characters")
    return keys, left


@pytest.mark.slow
def test_keys_are_found_in_random_text() -> None:
    """What is around a key must not hide it: other keys, other text, or JSON around all."""
    keys, left = search(20261118, 400)
    assert keys > 800
    assert 1000 * len(left) < MISSES * keys, (len(left), keys, "\n".join(left[:40]))


@pytest.mark.soak
def test_keys_are_found_in_random_text_at_length() -> None:
    """The same with a hundred thousand texts."""
    hiding = Search("hidden-keys", goal={"texts": 100_000})
    for number in hiding.rounds(share=0.05):
        keys, left = search(number, EACH)
        hiding.count(texts=EACH, keys=keys, missed=len(left))
        missed = hiding.figures.get("missed", 0) + len(left)
        if 1000 * missed >= MISSES * (hiding.figures.get("keys", 0) + keys):
            hiding.blame(f"round {number}: {missed} missed in all; {'; '.join(left[:20])}")
    assert hiding.problems == []
