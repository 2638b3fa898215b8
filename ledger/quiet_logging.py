"""Loggers that tell no secrets: what an error quotes goes to the log without them.

They know all known formats; a user's own rules belong to a ledger, and a log may be of several.
"""

from __future__ import annotations

import logging

from ledger.redacting import STANDARD

_FORMATTER = logging.Formatter()


class _WithoutSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        shown = STANDARD.text(said)
        if shown != said:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _FORMATTER.formatException(record.exc_info)
            shown = STANDARD.text(trace)
            if shown != trace:
                # The text stands for the exception: who formats that again would tell.
                record.exc_text, record.exc_info = shown, None
        return True


_FILTER = _WithoutSecrets()


def logger_of(name: str) -> logging.Logger:
    """The logger of this name, that tells no secrets."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger
