"""Tracebacks for events and logs: the frames of the user's code, redacted and shortened.

Frames of this package and of libraries are left out, except the one that raised. File names are
relative to where their package is imported from: no home directory is recorded.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

from turnledger.ledger.errors import TurnledgerError

# The most bytes of a traceback that are kept: its end, where the error is.
MOST = 16 * 1024
_CUT = "...\n"
_OURS = str(Path(__file__).parents[2]) + os.sep
_STANDARD = tuple(
    sysconfig.get_path(name) + os.sep
    for name in ("stdlib", "platstdlib")
    if sysconfig.get_path(name)
)


def traceback_text(error: BaseException, redact: Callable[[str], str]) -> str:
    """The traceback of an error and of its causes; empty if none of it is the user's.

    Args:
        error: The error, as it was caught.
        redact: Replaces secrets. It gets the whole text, before the text is shortened.
    """
    try:
        shown = TracebackException.from_exception(error, compact=True)
        if not _trim(shown, isinstance(error, TurnledgerError), set()):
            return ""
        text = redact("".join(shown.format()))
    except Exception:  # an error whose own text can't be made must not hide it
        return ""
    data = text.encode(errors="replace")
    if len(data) <= MOST:
        return data.decode()
    return _CUT + data[len(_CUT) - MOST :].decode(errors="ignore")


def _trim(shown: TracebackException, is_expected: bool, seen: set[int]) -> bool:
    """Leave out what is not the user's; whether any frame is left.

    Args:
        shown: The error; its causes and parts are trimmed too.
        is_expected: If this package raised it, that was on purpose, and its message says all.
        seen: What was trimmed already.
    """
    if id(shown) in seen:
        return False
    seen.add(id(shown))
    kept = [frame for frame in shown.stack if is_users(frame.filename)]
    for last in shown.stack[-1:]:
        is_told = is_expected and last.filename.startswith(_OURS)
        if not (is_told or is_users(last.filename)):
            kept.append(last)
    shown.stack = StackSummary.from_list([_relative(frame) for frame in kept])
    found = bool(kept)
    for part in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if part is not None:
            # What comes of it is told by the error that it is the cause of.
            found = _trim(part, True, seen) or found
    return found


def is_users(name: str) -> bool:
    """Whether a file is the user's: not of this package, of Python or of a library."""
    if name.startswith((_OURS, *_STANDARD, "<frozen ")):
        return False
    return not {"site-packages", "dist-packages"}.intersection(Path(name).parts)


def _relative(frame: FrameSummary) -> FrameSummary:
    return FrameSummary(
        relative_name(frame.filename),
        frame.lineno,
        frame.name,
        lookup_line=False,
        line=frame.line or "",
    )


def relative_name(name: str) -> str:
    """A file's name below the working directory, below where it is imported from, or its last part.

    Libraries are named by where they are imported from, wherever that is.
    """
    if not os.path.isabs(name):
        return name
    here = os.path.abspath(os.curdir)
    if is_users(name) and _is_below(name, here):
        return os.path.relpath(name, here)
    folders = [os.path.abspath(folder) for folder in sys.path if folder]
    above = max((folder for folder in folders if _is_below(name, folder)), key=len, default="")
    return os.path.relpath(name, above) if above else os.path.basename(name)


def _is_below(name: str, folder: str) -> bool:
    return folder != os.sep and name.startswith(folder + os.sep)
