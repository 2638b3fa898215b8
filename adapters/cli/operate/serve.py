"""Command `serve`: the HTTP API of the ledger."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnledger.adapters.cli.shared.command import command, is_served, ledger_url, open_ledger
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.terminal_text import visible, visible_lines

if TYPE_CHECKING:  # need an extra
    from turnledger.adapters.http.app import App
    from turnledger.adapters.http.serving.settings import TlsFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command(
    without=("output",),
    example="""\
turnledger serve --db runs.db
turnledger serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem \\
  --allow-host ledger.example.org""",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Name or address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8321,
    show_default=True,
    help="TCP port; 0 for a free one.",
)
@click.option(
    "--tls-cert", "certificate", type=_FILE, metavar="FILE", help="Certificate chain, PEM."
)
@click.option("--tls-key", "key", type=_FILE, metavar="FILE", help="Its private key, PEM.")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A reverse proxy in front has TLS; X-Forwarded headers are trusted.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Host name that clients may call, besides --host and loopback.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin whose pages may call with a token (CORS): https://host.",
)
def serve(
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    behind_proxy: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
) -> None:
    """Serve the ledger over HTTP.

    The address goes to stdout. A link for a browser goes to stderr; its code is valid for
    one minute and one use. Programs need a token: see turnledger token. Beyond loopback the
    server starts only with TLS files or behind a proxy. SIGTERM and Ctrl-C end it: requests
    under way are answered, event streams are closed. The ledger is created if it does not exist.
    Warnings and errors are logged on stderr, without secrets.
    """
    # They need an extra; `serving` is the one that says so.
    from turnledger.adapters.http.serving.listener import listen  # isort: skip
    from turnledger.adapters.http import NotServedError
    from turnledger.adapters.http.app import App
    from turnledger.adapters.http.serving.server import serve as serve_app
    from turnledger.adapters.http.serving.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        tls=_tls_files(certificate, key),
        behind_proxy=behind_proxy,
        allowed_hosts=hosts,
        allowed_origins=origins,
    )
    if is_served(ledger_url()):
        raise NotServedError("Serving", ledger_url())
    with listen(settings) as listener, open_ledger(create=True) as ledger:
        app = App(
            ledger,
            hosts=settings.host_names,
            origins=settings.allowed_origins,
            any_scheme=settings.behind_proxy,
        )
        with _log_on_stderr():
            serve_app(
                app,
                listener,
                settings,
                quick=app.quick,
                on_ready=lambda stop: _announce(app, listener.url),
            )


def _tls_files(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    from turnledger.adapters.http.serving.settings import TlsFiles

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key belong together: give both.")
    return TlsFiles(certificate, key)


def _announce(app: App, url: str) -> None:
    click.echo(url)
    link = f"{url}/#code={app.served.sessions.new_code('admin')}"
    say("Serving. Ctrl-C ends it. For a browser on this machine, within a minute:")
    click.echo(visible(link), err=True)  # as it is: a redactor would mask the code


class _LogFormatter(logging.Formatter):
    """Log lines for a terminal: the time, the level, and a message without control characters."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of logging
        """The line of a record: a line break in its message can't begin another one."""
        return visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, and below it the traceback that it has."""
        return visible_lines(super().format(record))


def log_handler() -> logging.Handler:
    """Handler that writes log lines to stderr, without secrets."""
    from turnledger.ledger.redaction.safe_logging import RedactingFilter

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RedactingFilter())
    handler.setFormatter(_LogFormatter())
    return handler


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Log warnings and errors on stderr, unless the program has set up logging by itself."""
    root = logging.getLogger()
    if root.hasHandlers():
        yield
        return
    handler = log_handler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
