"""Loggers that write messages and tracebacks without secrets, by all redactors in use."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from turnledger.ledger.redaction.redactor import STANDARD, WITH_OWN_RULES

_MOST_NAMED = 5
_FORMATTER = logging.Formatter()


def _redacted(text: str) -> str:
    text = STANDARD.text(text)
    for redactor in list(WITH_OWN_RULES):
        text = redactor.text(text)
    return text


class RedactingFilter(logging.Filter):
    """Filter of a logger or a handler: masks secrets in messages and tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        shown = _redacted(message)
        if shown != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _FORMATTER.formatException(record.exc_info)
            shown = _redacted(trace)
            if shown != trace:
                # Handlers format `exc_info` again, so only the redacted text is kept.
                record.exc_text, record.exc_info = shown, None
        return True


_FILTER = RedactingFilter()


def logger_of(name: str) -> logging.Logger:
    """The logger with this name, with a filter that redacts."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger


_logger = logger_of("turnledger.redaction")


def warn_of_redacted(what: str, parts: Sequence[object]) -> None:
    """Log that a program goes on with what was redacted, by `on_redacted="warn"`.

    Args:
        what: What it goes on with.
        parts: The redacted parts; the first few are named.
    """
    named = ", ".join(str(part) for part in parts[:_MOST_NAMED])
    more = f", and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    _logger.warning("%s: %s%s", what, named, more)
