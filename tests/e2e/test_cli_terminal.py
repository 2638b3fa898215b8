"""Content of a ledger can't control the terminal that it is printed on."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.e2e.driving import InProcess, Processes, on_a_terminal
from tests.e2e.stories import CONTROL, MARKUP, UNSAFE
from turnledger.adapters.terminal_text import safe_json, visible, visible_lines
from turnledger.ledger import NEW, CustomEvent, EvaluationStarted, RunStarted, new_run_id


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run whose tags, prompt and content try everything."""
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(tags={UNSAFE: MARKUP, MARKUP: UNSAFE})], NEW)
        prompt = EvaluationStarted(
            evaluation_id=UNSAFE, prompt_ns=UNSAFE, prompt_key=MARKUP, prompt_digest=""
        )
        ledger.append(run, [prompt, CustomEvent(kind="a.b", data=UNSAFE + MARKUP)], 1)
    return run


def commands(run: UUID) -> list[tuple[str, ...]]:
    return [("runs",), ("show", str(run)), ("show", str(run), "3"), ("log", str(run)), ("tail",)]


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
@pytest.mark.parametrize("place", range(5))
def test_no_control_character_is_printed(cli: InProcess, run: UUID, place: int, form: str) -> None:
    """No command prints a control, escape or direction character, in any format."""
    done = cli(*commands(run)[place], "-o", form)
    assert done.code == 0
    assert CONTROL.findall(done.out) == []
    assert "evil" in done.out
    assert done.err == ""


def test_json_means_the_same(cli: InProcess, run: UUID) -> None:
    """Escaping changes nothing of what a program reads."""
    record = cli("log", run, "--type", "custom", "-o", "jsonl").lines[0]
    assert record["data"]["data"] == UNSAFE + MARKUP
    assert cli("runs", "-o", "json").json[0]["tags"] == {UNSAFE: MARKUP, MARKUP: UNSAFE}


def test_markup_is_only_text(cli: InProcess, run: UUID) -> None:
    """What looks like rich markup or an emoji code is printed as it is."""
    assert MARKUP in cli("runs").out
    assert MARKUP in cli("show", run).out
    assert MARKUP in cli("show", run, "3").out


def test_visible_writes_out_what_is_unsafe_only() -> None:
    """Unsafe characters are written out, all other text is left alone."""
    assert visible("a\x1b[0m\x9b\r\n\u202e\U000e0041") == "a\\x1b[0m\\x9b\\r\\n\\u202e\\U000e0041"
    assert visible_lines("a\nb\x07") == "a\nb\\x07"
    plain = "Größe 東京 👩‍👩‍👧 مرحبا \\x1b"
    assert visible(plain) == plain
    assert safe_json('"\u202e\U000e0041é"'.encode()) == '"\\u202e\\udb40\\udc41é"'.encode()


def test_a_terminal_gets_colour_unless_NO_COLOR(processes: Processes, run: UUID) -> None:  # noqa: N802
    """Headings are styled on a terminal, never with NO_COLOR, never in a pipe."""
    code, styled = on_a_terminal(processes, "runs")
    assert (code, b"\x1b[1m" in styled) == (0, True)
    assert b"\x1b]0;" not in styled
    code, plain = on_a_terminal(processes, "runs", NO_COLOR="1")
    assert (code, b"\x1b" in plain) == (0, False)
    assert "\x1b" not in processes("runs", FORCE_COLOR="1").out


def test_export_is_not_for_a_terminal(processes: Processes, run: UUID) -> None:
    """An export keeps every byte, so it refuses to go to a terminal."""
    assert on_a_terminal(processes, "export", "--all") == (2, b"")


def test_an_encoding_that_lacks_a_character_is_no_error(processes: Processes, run: UUID) -> None:
    """With an output encoding that can't spell a character it is written out."""
    with InProcess(processes.db).ledger() as ledger:
        ledger.append(new_run_id(), [RunStarted(tags={"city": "東京"})], NEW)
    done = processes("runs", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "\\u6771" in done.out
