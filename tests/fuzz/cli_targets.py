"""The command line: every command and option with arguments that are right, wrong and absurd.

In this process, so that it is fast; the ledger is a real file, put back after every command that
wrote something. Commands that wait for ever by design (`tail --follow`) are not called like that.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sqlite3
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.testing import CliRunner

from tests.fuzz.export_targets import damaged_export
from tests.fuzz.given_targets import GivenEvents, Seals
from tests.fuzz.material import exports, make_ledger, named_id
from tests.fuzz.mutating import mutate_bytes
from tests.fuzz.targets import Target, promise
from tests.fuzz.transcript_targets import Transcripts
from turnledger.adapters.cli import turnledger
from turnledger.adapters.cli.shared.exit_codes import ExitCode

COMMANDS = turnledger.load_all()
ENDS = frozenset(int(code) for code in ExitCode)
RUNS = [str(named_id(name)) for name in ("full", "plain", "fork", "of_fork", "single", "files")]
TEXTS = (
    "",
    " ",
    "-",
    "--",
    "0",
    "1",
    "-1",
    "2",
    "5",
    "7",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1" + "0" * 40,
    "9" * 5000,
    "1e3",
    "٣",
    "²",
    "nan",
    "new",
    "any",
    "x",
    "\udcff\udcfe",
    "é🦜",
    "\x1b[2J",
    "\u202e",
    "x" * 5000,
    "../..",
    "*",
    "[",
    "tool_call.*",
    "[!",
    "custom",
    "a=b",
    "team=red",
    "=",
    "k=" + "v" * 600,
    "why",
    "2026-01-01",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-12:00",
    "2026-02-30",
    "1:2",
    "1:",
    ":",
    "0:99999999999999999999",
    "/message/content",
    "/",
    "/~",
    "/~2",
    "/tools/0",
    "/conversation/-",
    "/message/content=1",
    '/message/content="x"',
    "/data=NaN",
    "/kind=" + "[" * 3000,
    "=1",
    "{}",
    '{"a":1}',
    "[" * 3000,
    "json",
    "table",
    "openai-chat",
    "gemini",
    "e1",
    "c3",
    "c1",
    "model",
    "tool:x",
    "acme/support/answer",
    "latest",
    "usage-by-day",
    "tool-statistics",
    "projection:X",
    "json:nothing",
    "nosuch:thing",
    "os.path:sep",
    ".:x",
    "..a:b",
    ":",
    "a:",
    "tests.shop_agent:nothing",
    "\udc80:x",
    "bash",
    "zsh",
    *RUNS,
    RUNS[0].upper(),
    "{" + RUNS[1] + "}",
    "urn:uuid:" + RUNS[2],
    RUNS[1][:-1],
    "01890a5d-ac96-774b-bcce-b302099a8057",
)
PATHS = (
    "runs.db",
    "sqlite:///runs.db",
    "copy.db",
    "garbage.db",
    "empty.db",
    "other.db",
    "damaged.db",
    "folder",
    "nothing.db",
    "folder/nothing.db",
    "nowhere/nothing.db",
    "runs.db/x",
    "/dev/null",
    "/dev/full",
    "/dev/zero",
    "/dev/urandom",
    "/proc/self/mem",
    "/proc/self/status",
    "",
    ".",
    "~",
    "\udcff.db",
    "x" * 300,
    "memory://",
    "sqlite://",
    "sqlite:///",
    "sqlite:////dev/null",
    "file:runs.db?mode=memory",
    "http://localhost/x",
    "postgresql://%zz/x",
    "postgresql:///x?host=/nowhere&connect_timeout=1",
    "postgresql://localhost:1/x?nosuch=1",
    "given.jsonl",
    "export.jsonl",
    "seal.json",
    "seal.key",
)
# Waiting for more, and tests that run code, are no matter of arguments.
LEFT_OUT = frozenset({"--follow", "-f"})


class Given(NamedTuple):
    """A call of the command: what the damaged files hold, and what comes in on stdin."""

    args: list[str]
    stdin: bytes
    file: bytes
    damage: int | None


@contextmanager
def _taken_port() -> Iterator[int]:
    """A port of all addresses of this machine, on which something listens."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as taken:
        yield taken.getsockname()[1]


class CommandLine(Target):
    """`turnledger` with any arguments, any files and anything on stdin."""

    name = "command-line"
    inputs = 800
    few = 120
    goal = 16_000

    @contextmanager
    def prepared(self) -> Iterator[None]:
        before = Path.cwd()
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            os.chdir(folder)
            try:
                self._make()
                with _taken_port() as self._taken:
                    yield
            finally:
                self._look.close()
                os.chdir(before)

    def _make(self) -> None:
        make_ledger(Path("copy.db"))
        self._content = Path("copy.db").read_bytes()
        Path("garbage.db").write_bytes(b"garbage" * 1000)
        Path("empty.db").write_bytes(b"")
        Path("folder").mkdir()
        Path("export.jsonl").write_bytes(exports()[-1])
        with sqlite3.connect("other.db") as db:
            db.execute("CREATE TABLE mine (x)")
        db.close()
        self._look = sqlite3.connect(":memory:")
        self._put_back()
        self._kept = set(os.listdir())

    def _put_back(self) -> None:
        self._look.close()
        for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
            Path(name).unlink(missing_ok=True)
        Path("runs.db").write_bytes(self._content)
        self._look = sqlite3.connect("file:runs.db?mode=ro", uri=True)
        self._seen = self._version()
        self._file = os.stat("runs.db").st_ino

    def _version(self) -> int:
        """Changes when anybody else has written to the file."""
        return int(self._look.execute("PRAGMA data_version").fetchone()[0])

    def draw(self, dice: random.Random) -> Given:
        name = dice.choice(list(COMMANDS))
        args = _arguments(dice, COMMANDS[name])
        if dice.random() < 0.03:
            name = dice.choice((*TEXTS, "--version", "--help"))
        before = _common(dice) if dice.random() < 0.15 else []
        if dice.random() < 0.05:
            args.insert(dice.randrange(len(args) + 1), dice.choice(TEXTS))
        if name == "serve":  # it would not end if it could listen
            args += ["--port", str(self._taken)]
        damage = dice.randrange(2**32) if "damaged.db" in args + before else None
        source = dice.randrange(6)
        file = b""
        if source == 0:
            file = damaged_export(dice, exports()[-2:])
        elif source == 1:
            file = GivenEvents().draw(dice)
        elif source == 2:
            file = Transcripts().draw(dice)[1]
        elif source == 3:
            file = Seals().draw(dice)
        stdin = file if dice.random() < 0.7 else dice.randbytes(dice.choice((0, 5, 200)))
        return Given([*before, *name.split(" "), *args], stdin, file, damage)

    def lay_out(self, given: Given) -> None:
        """Write the files that a call may name."""
        for name in ("given.jsonl", "seal.json", "seal.key"):
            Path(name).write_bytes(given.file)
        if given.damage is not None:
            dice = random.Random(given.damage)
            Path("damaged.db").write_bytes(damaged_file(dice, self._content))

    def check(self, given: Given) -> bool:
        self.lay_out(given)
        done = CliRunner().invoke(
            turnledger,
            given.args,
            input=given.stdin,
            env={"TURNLEDGER_DB": "runs.db"},
            prog_name="turnledger",
        )
        error = done.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        promise(done.exit_code in ENDS, f"it ended with {done.exit_code}")
        promise("Traceback" not in done.stderr, f"a traceback: {done.stderr}")
        self._check_ledger(done.exit_code)
        self._tidy()
        if done.exit_code not in (0, 2):
            promise(
                bool(done.stderr.strip() or done.stdout_bytes),
                f"it ended with {done.exit_code} and no word",
            )
        return done.exit_code == 0

    def _check_ledger(self, code: int) -> None:
        if not Path("runs.db").exists() or os.stat("runs.db").st_ino != self._file:
            self._put_back()
            promise(False, "the ledger's file was replaced")
        if self._version() == self._seen:
            return
        if code in (1, 2, 3, 4, 5):
            held = _held(self._look)
            self._put_back()
            promise(held == _held(self._look), f"exit code {code}, and yet something was written")
        else:
            self._put_back()

    def _tidy(self) -> None:
        for name in set(os.listdir()) - self._kept:
            if not Path(name).is_dir():
                Path(name).unlink()
        if Path("copy.db").stat().st_size != len(self._content) or Path("copy.db-wal").exists():
            Path("copy.db").write_bytes(self._content)
        Path("garbage.db").write_bytes(b"garbage" * 1000)
        Path("empty.db").write_bytes(b"")

    def shown(self, given: Given) -> str:
        file, stdin = (b64encode(content).decode() for content in (given.file, given.stdin))
        return (
            f"turnledger {json.dumps(given.args)} with a ledger damaged by {given.damage}; "
            f"given.jsonl in base64: {file}; stdin in base64: {stdin}"
        )


def _held(db: sqlite3.Connection) -> list[Any]:
    tables = ("events", "blobs", "runs", "run_tags")
    return [db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]


def damaged_file(dice: random.Random, content: bytes) -> bytes:
    """A database file with some bytes changed, cut or overwritten."""
    if dice.random() < 0.2:
        return mutate_bytes(dice, content)
    damaged = bytearray(content)
    for _ in range(dice.choice((1, 1, 3, 20))):
        at = dice.randrange(100) if dice.random() < 0.2 else dice.randrange(len(damaged))
        damaged[at] = dice.randrange(256)
    return bytes(damaged)


def _common(dice: random.Random) -> list[str]:
    if dice.random() < 0.5:
        return ["--db", dice.choice(PATHS)]
    return ["-o", dice.choice(("json", "jsonl", "table", "", "x"))]


def _arguments(dice: random.Random, command: click.Command) -> list[str]:
    """Arguments for a command: mostly of the kind that it wants, now and then not."""
    args: list[str] = []
    for param in command.params:
        if isinstance(param, click.Argument):
            args += [_value(dice, param) for _ in range(_count(dice, param))]
            continue
        assert isinstance(param, click.Option)
        wanted = 0.9 if param.required else 0.12
        option = dice.choice(param.opts)
        if dice.random() > wanted or LEFT_OUT & set(param.opts):
            continue
        if param.is_flag:
            args.append(option)
            continue
        value = _value(dice, param)
        joined = option.startswith("--") and dice.random() < 0.3
        args += [f"{option}={value}"] if joined else [option, value]
    return args


def _count(dice: random.Random, param: click.Argument) -> int:
    if param.nargs == -1:
        return dice.choice((0, 1, 1, 2))
    if not param.required:
        return dice.choice((0, 1))
    return 1 if dice.random() < 0.97 else dice.choice((0, 2))


def _value(dice: random.Random, param: click.Parameter) -> str:
    kind = param.type
    if param.name == "workers":  # each is a process, which is no matter of arguments
        return dice.choice(("0", "1", "1", "-1", "x", ""))
    if dice.random() < 0.12:
        return dice.choice((*TEXTS, *PATHS))
    if isinstance(kind, click.Choice):
        return str(dice.choice(list(kind.choices)))
    if isinstance(kind, click.types.IntParamType):
        return dice.choice(("0", "1", "2", "3", "5", "9", "28", "9" * 19, "9" * 30, "-1"))
    if isinstance(kind, click.Path | click.File) or param.name == "db":
        return dice.choice((*PATHS, "given.jsonl", "given.jsonl", "runs.db"))
    if kind.name == "run":
        return dice.choice(RUNS)
    return dice.choice(TEXTS)
