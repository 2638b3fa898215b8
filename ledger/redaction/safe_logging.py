"""Loggers that tell no secrets: what an error quotes goes to the log without them.

They know all known formats, and the rules of every redactor that the program has in use: a log
may be of several ledgers.
"""

from __future__ import annotations

import logging

from turnledger.ledger.redaction.redactor import STANDARD, WITH_OWN_RULES

_FORMATTER = logging.Formatter()


def _without_secrets(text: str) -> str:
    text = STANDARD.text(text)
    for redactor in list(WITH_OWN_RULES):
        text = redactor.text(text)
    return text


class _WithoutSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        shown = _without_secrets(said)
        if shown != said:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = _FORMATTER.formatException(record.exc_info)
            shown = _without_secrets(trace)
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
