"""Fuzzing: whatever comes in is accepted for good or refused with a typed error.

A few inputs of every target here, a million in `make soak`. A failure names the input, which
`python -m tests.fuzz TARGET ROUND NUMBER` tries again.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.driving import PROGRAM
from tests.fuzz.broken_targets import BROKEN
from tests.fuzz.catalogue import TARGETS
from tests.fuzz.cli_targets import ENDS, CommandLine
from tests.fuzz.guided import GivenDice
from tests.fuzz.running import RoundReport, fuzz, fuzz_apart, fuzz_guided
from tests.soaking import SOAK_FOLDER, Search

# What `make soak` tries in all; the goals of the targets add up to no less.
MILLION = 1_000_000
# A target's part of the time, by what its inputs cost.
SHARES = {
    "command-line": 0.05,
    "decode": 0.01,
    "encode": 0.01,
    "given-events": 0.02,
    "histories": 0.02,
    "import": 0.03,
    "redactor-files": 0.01,
    "seals": 0.01,
    "transcripts": 0.03,
}
# Of each target when it goes by coverage. A round takes its time to begin, so it is long.
GUIDED_SHARE = 0.01
GUIDED_ROUND = 5


def test_the_goals_add_up_to_a_million() -> None:
    """That is what `make soak` promises; every target has a part of the time."""
    assert sum(target.goal for target in TARGETS.values()) >= MILLION
    assert set(SHARES) == set(TARGETS)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_few_inputs_are_accepted_or_refused(name: str) -> None:
    """Typed errors only, nothing written on a refusal, and both do occur."""
    target = TARGETS[name]()
    report = fuzz(target, 0, range(target.few))
    assert report.problems == []
    assert report.inputs == target.few
    assert report.accepted > 0
    assert report.refused > report.accepted


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dies", "ended the process with -6"),
        ("grows", "MemoryError"),
        ("hangs", "hangs"),
        ("raises", "no typed error, but KeyError"),
    ],
)
def test_a_round_that_goes_wrong_is_noticed(name: str, told: str) -> None:
    """A process that hangs, dies or wants too much memory is known by its input, like an error."""
    # Only what does hang is ended early: on a busy machine anything else may take a while.
    report = fuzz_apart(BROKEN[name](), 1, 10, stuck_after=5.0 if name == "hangs" else 120.0)
    (problem,) = report.problems
    assert told in problem
    assert f"python -m tests.fuzz {name} 1 7\n" in problem


def test_a_few_command_lines_in_processes_of_their_own() -> None:
    """As a shell calls it, with the installed command: the same exit codes, and no traceback."""
    target = CommandLine()
    with target.prepared():
        for number in range(8):
            given = target.drawn(0, number)
            target.lay_out(given)
            done = subprocess.run(
                [PROGRAM, *given.args],
                input=given.stdin,
                capture_output=True,
                env={**os.environ, "TURNLEDGER_DB": "runs.db"},
                timeout=120,
            )
            assert done.returncode in ENDS, given
            assert b"Traceback" not in done.stderr, given


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_dice_of_given_bytes_draw_the_same_input_again(name: str) -> None:
    """What the search by coverage found can be tried again, and other bytes are another input."""
    target = TARGETS[name]()
    with target.prepared():
        texts = [bytes([size % 251]) * size for size in range(0, 400, 16)]
        drawn = [target.shown(target.draw(GivenDice(text))) for text in texts]
        again = [target.shown(target.draw(GivenDice(text))) for text in texts]
    assert drawn == again
    assert len(set(drawn)) > len(texts) // 2


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_million_inputs_are_accepted_or_refused(name: str) -> None:
    """In processes with bounded memory and a watch: none hangs, dies or answers otherwise."""
    target = TARGETS[name]()
    search = Search(f"fuzz-{name}", goal={"inputs": target.goal})
    for number in search.rounds(share=SHARES[name]):
        _count(search, fuzz_apart(target, number, target.inputs))
    assert search.problems == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "told"),
    [("dies", "deadly signal"), ("grows", "MemoryError"), ("raises", "KeyError: 'NO SUCH KEY'")],
)
def test_a_guided_round_that_goes_wrong_is_noticed(name: str, told: str, tmp_path: Path) -> None:
    """With the input, in base64, and what happened."""
    (problem,) = fuzz_guided(name, 1, 10, tmp_path / "corpus").problems
    assert told in problem
    assert "in base64: Cgo=\n" in problem


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_inputs_that_go_by_coverage_are_accepted_or_refused(name: str) -> None:
    """The same promises for inputs that atheris finds its way with; it goes on where it was."""
    target = TARGETS[name]()
    search = Search(f"guided-{name}", goal={"inputs": target.goal})
    corpus = SOAK_FOLDER / "corpus" / name
    for number in search.rounds(share=GUIDED_SHARE):
        _count(search, fuzz_guided(name, number, GUIDED_ROUND * target.inputs, corpus))
    assert search.problems == []


def _count(search: Search, report: RoundReport) -> None:
    higher = max(0, report.peak_kib // 1024 - search.figures.get("peak_mib", 0))
    search.count(
        inputs=report.inputs, accepted=report.accepted, refused=report.refused, peak_mib=higher
    )
    search.blame(*report.problems)
