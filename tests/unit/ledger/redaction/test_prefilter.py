"""The prefilter: it may let too much through, and must not hold back what a format matches."""

from __future__ import annotations

import re
from itertools import count
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.secret_samples import MAKERS, samples
from tests.texts.ordinary import KINDS
from tests.texts.spellings import SPELLINGS
from turnledger.ledger import Redactor
from turnledger.ledger.redaction.contextual import KNOWN, OPTIONAL
from turnledger.ledger.redaction.patterns import SecretFormat
from turnledger.ledger.redaction.prefilter import Prefilter, widened
from turnledger.ledger.redaction.search import WORTH, Search

FORMATS = [*KNOWN, *OPTIONAL]
# A lookahead for a character after some others: hypothesis does not find such text by chance.
_SOME = re.compile(r"\(\?=\[[^]]*\]\{0,\d+\}\[[^]]*\]\)")


def _redactor(worth: int) -> Redactor:
    redactor = Redactor()
    vars(redactor)["_search"] = Search(redactor.formats, worth)
    return redactor


# With prefilters from the first character on, and never.
QUICK, THOROUGH = _redactor(0), _redactor(1 << 60)


def _passes(prefilter: Prefilter, text: str) -> bool:
    return prefilter.passes(text.encode("ascii", "replace").decode())


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: f"{one.name}-{one.example}")
def test_all_that_a_format_matches_passes(one: SecretFormat) -> None:
    """Any text that the regular expression can match, and not only samples of it."""
    prefilter = Prefilter([one])
    pattern = _SOME.sub("", f"(?:{one.before}){one.pattern}")

    @settings(max_examples=10)
    @given(st.from_regex(pattern))
    def check(text: str) -> None:
        assert _passes(prefilter, text)

    check()


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_redactor_with_a_prefilter_finds_the_same(name: str) -> None:
    """What is found must not depend on how much a process has searched before."""
    random = Random(21)
    for one in samples(21, len(MAKERS[name]), [name]):
        for variants in SPELLINGS.values():
            for variant in variants:
                text = f"é {variant(random, one)}"
                assert QUICK.text(text) == THOROUGH.text(text)
                assert QUICK.may_be_in(text) == THOROUGH.may_be_in(text), text


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_text_is_ruled_out(kind: str) -> None:
    """It is why there is a prefilter: of such text at most a third is searched."""
    search = Search(KNOWN, worth=0)
    text = KINDS[kind](Random(22), 200_000)
    pieces = [text[start : start + 4_000] for start in range(0, len(text), 4_000)]
    assert sum(map(search.passes, pieces)) <= len(pieces) / 3


@pytest.mark.parametrize(
    ("pattern", "passing", "held"),
    [
        # Before a word.
        (r"(?<![A-Za-z0-9_-])ab[0-9]{20}", ["x ab" + "1" * 20], ["xab" + "1" * 20]),
        (r"(?:(?<![a-z])|(?<=\\[nr]))ab", ["ab", r"\nab", "1ab"], ["zab", r"\tab"]),
        # After a name, and not after another.
        (r"(?i:(?<=api)|(?<=app[ _-]))key", ["apikey", "App key"], ["key", "hotkey", "appkey"]),
        (r"(?i:(?<!page)(?<!page_))token", ["token", "my_token", "age token"], ["Page_token"]),
        # Repeats, and what is beyond ASCII.
        (r"x[^a]{3}(?=y)\S", ["xüüü1"], ["xüaü1"]),
        (r"(?s:.)\w{1,300}=", ["-é="], ["-="]),
    ],
)
def test_a_pattern_is_widened_to_what_it_matches(
    pattern: str, passing: list[str], held: list[str]
) -> None:
    """Its lookbehinds count where they come first; all that it matches passes."""
    prefilter = Prefilter([SecretFormat("one", pattern, "")])
    assert all(_passes(prefilter, text) for text in passing)
    assert not any(_passes(prefilter, text) for text in held)


@given(st.text("ae_gp -", max_size=12), st.sampled_from(["", "page", "page_", "age"]))
@example("", "page")
def test_text_before_a_forbidden_word_is_told_apart(before: str, word: str) -> None:
    """A lookbehind that forbids words is exact: it is not left out, and nothing else is held."""
    pattern = r"(?<!page)(?<!page_)(?<!ge-)token"
    prefilter = Prefilter([SecretFormat("one", pattern, "")])
    text = f"{before}{word}token"
    assert _passes(prefilter, text) == (re.search(pattern, text) is not None)


def test_a_prefilter_that_has_become_slow_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text can be made that fills an automaton with states; other text must not pay for it."""
    search = Search(KNOWN, worth=0)
    assert not search.passes("nothing")
    clock = count()
    monkeypatch.setattr("turnledger.ledger.redaction.search.thread_seconds", lambda: next(clock))
    search.passes("slowly")
    assert search.passes("nothing"), "it is still in use"
    assert search.finds("ghp_" + "a1B2" * 9)
    monkeypatch.undo()
    assert not search.finds("a" * 17 * WORTH)
    assert not search.passes("nothing"), "it was not made again"


def test_a_redactor_without_formats_rules_out_all() -> None:
    """An automaton of nothing matches nothing."""
    assert not Search((), worth=0).passes("ghp_" + "a1" * 18)
    assert widened("") == ([], "")
