"""A power cut in the middle of writing: what is on disk opens, and holds what was acknowledged."""

from __future__ import annotations

from tests.crash.driver import drive


def test_a_copy_of_any_moment_opens_and_holds_what_was_acknowledged(file_url: str) -> None:
    """Whole copies hold all; with the unsynced end of the WAL torn off, all but the last moments.

    Each opens, verifies, and is a beginning of what was written, with no commit in part.
    """
    told = drive("tearing", seconds=150, url=file_url, seed=6, cuts=16, tears=6)
    print(told)

    assert told["wrong"] == []
    assert told["torn"] == 96
    assert told["shortened"] > 20
    assert told["checkpoints"] > 3
