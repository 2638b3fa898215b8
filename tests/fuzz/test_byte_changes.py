"""Byte changes: whatever of a ledger's file is changed, verify finds what a reader could see.

A few hundred changes here, a hundred thousand in `make soak`. A failure names the change, which
`python -m tests.fuzz byte-changes ROUND NUMBER` makes again.
"""

from __future__ import annotations

import pytest

from tests.fuzz.byte_changes import ByteChanges
from tests.fuzz.running import fuzz, fuzz_apart
from tests.soaking import Search


def test_every_change_that_a_reader_sees_is_found() -> None:
    """Of a few hundred: verify says so, or all that can be read is as it was."""
    target = ByteChanges()
    report = fuzz(target, 0, range(target.few))
    assert report.problems == []
    assert report.accepted > target.few // 2  # found
    assert report.refused > 0  # not found: nobody can see them


@pytest.mark.soak
def test_a_hundred_thousand_changes_that_a_reader_sees_are_found() -> None:
    """In processes of their own: verify never hangs, dies or raises what is no typed error."""
    target = ByteChanges()
    search = Search("byte-changes", goal={"changes": 100_000})
    for number in search.rounds(share=0.07):
        report = fuzz_apart(target, number, target.inputs)
        search.count(changes=report.inputs, found=report.accepted, unseen=report.refused)
        search.blame(*report.problems)
    assert search.problems == []
