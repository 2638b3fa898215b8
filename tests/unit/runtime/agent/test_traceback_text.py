"""Tracebacks as events keep them: whose frames, without secrets, how long."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import turnledger
from turnledger.runtime.agent.schema import decode
from turnledger.runtime.agent.traceback_text import MOST, relative_name, traceback_text
from turnledger.runtime.errors import BudgetExceededError


def caught(function: Any, *arguments: Any) -> Exception:
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def same(text: str) -> str:
    return text


def test_frames_of_libraries_are_left_out_but_the_one_that_raised() -> None:
    """The user's own line is there, and where the error came from; not what lies between."""

    def read() -> None:
        json.loads("{")

    text = traceback_text(caught(read), same)
    assert "test_traceback_text.py" in text
    assert 'json.loads("{")' in text
    assert text.count("/json/") + text.count("json/decoder.py") <= 2
    assert "in decode\n" not in text
    assert text.endswith("(char 1)\n")


def test_frames_of_this_package_are_left_out() -> None:
    """The loop's own frames tell a user nothing."""

    def broken() -> None:
        decode(int, "x")

    text = traceback_text(caught(broken), same)
    assert "turnledger/runtime" not in text
    assert 'decode(int, "x")' in text


def test_an_expected_failure_of_this_package_has_no_traceback() -> None:
    """Its message says all, and no frame is the user's."""
    code = "def fail(error): raise error"
    names: dict[str, Any] = {}
    inside = str(Path(turnledger.__file__).parent / "x.py")
    exec(compile(code, inside, "exec"), names)
    error = caught(names["fail"], BudgetExceededError("max_total_tokens", allowed=1, used=2))
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    # Without the frames of this test.
    error.__traceback__ = error.__traceback__.tb_next
    assert traceback_text(error, same) == ""


def test_file_names_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the longest folder that modules come from; never a home directory."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "src"), "/"])
    assert relative_name(str(tmp_path / "src" / "pay" / "tools.py")) == str(Path("pay/tools.py"))
    assert relative_name("/home/ann/elsewhere/tools.py") == "tools.py"
    assert relative_name("<string>") == "<string>"
    text = traceback_text(caught(lambda: 1 / 0), same)
    assert str(Path.home()) not in text


def test_causes_are_kept() -> None:
    """What an error came from is told before it."""

    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    text = traceback_text(caught(fail), same)
    assert text.index("KeyError: 'first'") < text.index("direct cause") < text.index("second")


def test_secrets_are_replaced_before_the_text_is_cut() -> None:
    """A secret at the cut would not be found in what is left of it."""
    secret = "s" * 100

    def fail() -> None:
        raise ValueError(secret + "x" * (MOST - 60))

    text = traceback_text(caught(fail), lambda text: text.replace(secret, "[gone]"))
    assert "sss" not in text.split("\n")[-2]
    assert len(text.encode()) <= MOST
    assert text.startswith("...\n")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_whatever_is_raised_has_a_traceback() -> None:
    """Errors without a text, without end, in groups: the run goes on as without it."""

    def deep(number: int) -> int:
        return deep(number + 1)

    def group() -> None:
        raise ExceptionGroup("both", [caught(lambda: 1 / 0), ValueError("\ud800")])

    def unprintable() -> None:
        raise UnprintableError

    assert "RecursionError" in traceback_text(caught(deep, 0), same)
    assert "ZeroDivisionError" in traceback_text(caught(group), same)
    assert "UnprintableError" in traceback_text(caught(unprintable), same)
