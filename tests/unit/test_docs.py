"""Every page does what it says: its snippets run, its output is what comes, its links lead on.

On a page, `python` blocks share one interpreter and `console` blocks one shell, in one empty
folder, in the order of the page. A `python` block whose first line is a file's name (`# agent.py`)
is that file as well: commands find it. A `text` block right after a `python` block is what that
prints. `py` is a program of `examples/peers`, to the letter, which `make peers` runs; `ts` one of
`clients/typescript`, which its tests compile and run where node is. A `diff`
block makes a file of another one of the page. `sql` goes to the page's PostgreSQL. Ids, digests
and times differ from run to run and are compared by kind. `...` stands for anything. A command
ends with exit code 0, unless the page asks `echo $?` next. A page with a provider's adapter on it
talks to strict servers (see `docs_providers`), which must not refuse anything.
`sh` blocks are not run (they install things): each line must be one that is known to be right.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from textwrap import dedent
from threading import Timer
from typing import NamedTuple, Self
from uuid import UUID

import pytest

from tests.postgres import BINARIES, FAST, PostgresServer, new_database
from tests.projects import FOREIGN_PLUGINS
from tests.unit.docs_providers import OTHERS, Providers, are_needed

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# Pages about a framework are read where the frameworks are installed (tests/frameworks).
FRAMEWORK = re.compile(
    r"from turnledger\.(?:adk|claude|langgraph|openai_agents|pydantic_ai) import"
)
FRAMEWORK_NAMES = [
    name for name, page in zip(NAMES, PAGES, strict=True) if FRAMEWORK.search(page.read_text())
]
# The server that pages talk about, where a reader writes the name of their own.
SERVER = "postgresql://localhost/agents"
PATIENCE = 600.0  # seconds that a page may take, on a busy machine
KINDS = ("python", "py", "ts", "console", "text", "sh", "sql", "diff")
PEERS = sorted((ROOT / "examples" / "peers").glob("*_agent.py"))
# Programs that stand on pages to the letter, by the kind of block.
PROGRAMS = {"py": PEERS, "ts": sorted((ROOT / "clients" / "typescript").glob("*.ts"))}
FILE = re.compile(r"# (\w+\.py)\n")
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d(?::\d\d)?)?"), "TIME"),
    (re.compile(r"'[^\s':]+:\d+:[0-9a-f]{6}'"), "WORKER"),
    (re.compile(r"[ \t]+"), " "),
)
INTERPRETER = """
import contextlib, io, json, sys, traceback
page = {"__name__": "__main__"}
answers = sys.stdout
for line in sys.stdin:
    printed, failed = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(json.loads(line), "<the page>", "exec"), page)
        except BaseException:
            failed = traceback.format_exc()
    answers.write(json.dumps([printed.getvalue(), failed]) + "\\n")
    answers.flush()
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str
    line: int


class Command(NamedTuple):
    """A command of a `console` block and the output that the page shows."""

    text: str
    output: str


def blocks(text: str) -> list[Block]:
    return [
        Block(m[2], dedent(m[3]), text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """`$ ` begins a command, `> ` goes on with it; everything else is output."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        more = next((i for i, line in enumerate(lines[1:]) if not line.startswith(">")), None)
        end = len(lines) if more is None else more + 1
        command = [lines[0], *(line[1:].removeprefix(" ") for line in lines[1:end])]
        yield Command("\n".join(command), "\n".join(lines[end:]))


def by_kind(text: str) -> str:
    """The text with what differs from run to run replaced by what kind of thing it is."""
    for pattern, kind in VARYING:
        text = pattern.sub(kind, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def matches(shown: str, came: str) -> bool:
    pattern = re.escape(by_kind(shown)).replace(re.escape("..."), "(?:.|\n)*?")
    return re.fullmatch(pattern, by_kind(came)) is not None


class Reader:
    """Somebody who types in what a page shows, in an empty folder."""

    def __init__(
        self, folder: Path, *, server: str = "", providers: Providers | None = None
    ) -> None:
        self._folder = folder
        self._server = server
        self._addresses: Mapping[str, str] = providers.addresses if providers else {}
        foreign = ("TURNLEDGER_DB", *OTHERS)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        environment |= providers.environment if providers else {}
        environment["CHECKOUT"] = str(ROOT)  # as readers of a page about examples/ set it
        environment["PYTEST_ADDOPTS"] = FOREIGN_PLUGINS
        # A page changes a file sooner than a reader: within the second that bytecode can't tell.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        # Our own command, and the psql and pg_dump that belong to the tests' server.
        path = (str(Path(sys.executable).parent), str(BINARIES), environment["PATH"])
        environment["PATH"] = os.pathsep.join(path)
        self._python = self._start([sys.executable, "-c", INTERPRETER], folder, environment)
        self._shell = self._start(["bash", "--norc"], folder, environment)
        self._send(self._shell, "exec 2>&1\n")
        # A page that hangs ends with an error, not never.
        self._patience = Timer(PATIENCE, self._give_up)
        self._patience.start()

    def _give_up(self) -> None:
        self._python.kill()
        self._shell.kill()

    @staticmethod
    def _start(command: list[str], folder: Path, env: dict[str, str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=env, stdin=pipe, stdout=pipe, text=True)

    @staticmethod
    def _send(process: subprocess.Popen[str], text: str) -> None:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        for process in (self._python, self._shell):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait(30)

    def _own(self, text: str) -> str:
        """The page's servers are the test's."""
        for address, ours in self._addresses.items():
            text = text.replace(address, ours)
        if not self._server:
            return text
        return text.replace(f"{SERVER}?", f"{self._server}&").replace(SERVER, self._server)

    def python(self, code: str) -> str:
        if name := FILE.match(code):
            (self._folder / name[1]).write_text(self._own(code))
        self._send(self._python, json.dumps(self._own(code)) + "\n")
        assert self._python.stdout is not None
        answer = self._python.stdout.readline()
        assert answer, f"the interpreter ended in:\n{code}"
        printed, failed = json.loads(answer)
        assert not failed, failed
        return str(printed)

    def diff(self, text: str) -> None:
        """Make a file of another one: each hunk's old lines stand in it once."""
        (first, second), hunks = _names_of(text), text.split("@@\n")[1:]
        made = (self._folder / first).read_text()
        for hunk in hunks:
            lines = hunk.splitlines()
            was = "\n".join(line[1:] for line in lines if line[:1] != "+")
            now = "\n".join(line[1:] for line in lines if line[:1] != "-")
            assert made.count(was) == 1, f"{first} has this {made.count(was)} times:\n{was}"
            made = made.replace(was, now)
        (self._folder / second).write_text(made)

    def sql(self, statements: str) -> None:
        """Let the page's server run these."""
        psql = [BINARIES / "psql", "-q", "-v", "ON_ERROR_STOP=1", self._server]
        done = subprocess.run(psql, input=statements, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def shell(self, command: str) -> tuple[str, int]:
        """What the command printed, and how it ended; `$?` stays what it is."""
        end = "-end-of-the-output-"
        self._send(self._shell, f'{self._own(command)}\ncode=$?; echo "{end}$code"; (exit $code)\n')
        assert self._shell.stdout is not None
        printed = ""
        while not (line := self._shell.stdout.readline()).startswith(end):
            assert line, f"the shell ended in `{command}`: {printed}"
            # Output without a line break at its end is followed by ours.
            if end in line:
                printed += line[: line.index(end)]
                line = line[line.index(end) :]
                break
            printed += line
        return printed, int(line.removeprefix(end))


def _names_of(diff: str) -> tuple[str, str]:
    names = re.match(r"--- (\w+\.py)\n\+\+\+ (\w+\.py)\n", diff)
    assert names, diff
    return names[1], names[2]


def read(name: str, text: str, folder: Path) -> None:
    """Do everything that the page shows, and compare."""
    given = blocks(text)
    with ExitStack() as ending:
        server = ""
        if any(SERVER in block.text for block in given):
            # One of its own: a page may hold a transaction open, which delays all who tail.
            server = new_database(ending.enter_context(PostgresServer(FAST)).url())
        providers = None
        if are_needed([block.text for block in given]):
            providers = ending.enter_context(Providers())
        reader = ending.enter_context(Reader(folder, server=server, providers=providers))
        printed = ""
        for block in given:
            where = f"{name}:{block.line}"
            if block.kind == "python":
                printed = reader.python(block.text)
            elif block.kind == "text":
                assert matches(block.text, printed), f"{where}: shown\n{block.text}came\n{printed}"
            elif block.kind == "diff":
                reader.diff(block.text)
            elif block.kind == "sql":
                reader.sql(block.text)
            elif block.kind == "console":
                run_commands(reader, list(commands(block)), where)
        assert providers is None or not providers.refused, providers.refused


def run_commands(reader: Reader, given: list[Command], where: str) -> None:
    for place, (command, shown) in enumerate(given):
        printed, code = reader.shell(command)
        asked = place + 1 < len(given) and given[place + 1].text == "echo $?"
        assert asked or code == 0, f"{where}: `{command}` ended with {code}: {printed}"
        assert matches(shown, printed), f"{where}: `{command}` shown\n{shown}\ncame\n{printed}"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FRAMEWORK_NAMES])
def test_what_a_page_shows_is_what_happens(name: str, tmp_path: Path) -> None:
    """Every python and console block runs, in order, and prints what the page says."""
    read(name, (ROOT / name).read_text(), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_are_of_a_known_kind(page: Path) -> None:
    """No block escapes the tests by its label; what is not run is on the list of `sh` lines."""
    known = _known_lines()
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page.read_text())), f"{page.name}: a fence is not closed"
    for block in blocks(page.read_text()):
        assert block.kind in KINDS, f"{page.name}:{block.line}: ```{block.kind}"
        if block.kind == "console":
            assert block.text.startswith("$ "), f"{page.name}:{block.line}"
        if block.kind in PROGRAMS:
            programs = [file.read_text() for file in PROGRAMS[block.kind]]
            assert block.text in programs, f"{page.name}:{block.line}"
        if block.kind == "sh":
            unknown = [line for line in block.text.splitlines() if line not in known]
            assert not unknown, f"{page.name}:{block.line}: {unknown}"


def _known_lines() -> set[str]:
    """Targets that the Makefile has, and installations of extras that the project has."""
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return {
        "",
        "python3 -m venv .venv",
        "source .venv/bin/activate",
        "pip install .",
        *(f"pip install '{where}[{extra}]'" for extra in extras for where in (".", "turnledger")),
        *(f"make {target}" for target in targets),
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A relative link names a file that there is and, after #, a heading in it."""
    prose = FENCE.sub("", page.read_text())
    for target in LINK.findall(prose):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        assert file.is_relative_to(ROOT)
        if heading:
            assert heading in _anchors(file), f"{page.name} links to {target}"


def _anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))  # as mkdocstrings has them
    return names | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


# A subclass of MainLoop may use the first two, which the specification prints; the third is of
# `eventsourcing`, whose recorders are written so.
INHERITED = {"self._bus", "self._adapter", "self._insert_tracking"}
PRIVATE = re.compile(r"(?:\b\w+|\))\._[a-z]\w*|\bimport _\w+")
OWN = re.compile(r"^\s+(self\._\w+)(?:: [^=]+)? =", re.MULTILINE)


def private_names(text: str) -> set[str]:
    """What a program uses of another's private names: attributes that it does not set itself."""
    return set(PRIVATE.findall(text)) - set(OWN.findall(text)) - INHERITED


def test_nothing_in_docs_or_examples_touches_a_private_name() -> None:
    """But for `self._bus` and `self._adapter` in a subclass of MainLoop."""
    programs = {
        name: "\n".join(
            block.text.replace("\n> ", "\n")
            for block in blocks(page.read_text())
            if block.kind in ("python", "console")
        )
        for name, page in zip(NAMES, PAGES, strict=True)
    }
    programs |= {file.name: file.read_text() for file in (ROOT / "examples").rglob("*.py")}
    assert {name: found for name, text in programs.items() if (found := private_names(text))} == {}
    assert private_names("loop._ledger\nself._bus\n    self._x = 1\n") == {"loop._ledger"}
    assert private_names("from turnledger import _lazy") == {"import _lazy"}


def test_every_page_is_reached_from_the_index() -> None:
    """docs/index.md links every other page of docs/."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    missing = [
        name
        for name, page in zip(NAMES, PAGES, strict=True)
        if page.is_relative_to(index.parent) and page not in {index, *linked}
    ]
    assert not missing


def test_the_two_commands_of_the_readme_are_there() -> None:
    """`make demo` and `make test`, as they are written on the first screen."""
    commands = re.findall(r"^    (make \w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == ["make demo", "make test"]
    assert set(commands) <= _known_lines()


def test_the_readme_example_is_short() -> None:
    """The README's one example has at most 22 lines."""
    (example,) = [
        block for block in blocks((ROOT / "README.md").read_text()) if block.kind == "python"
    ]
    assert len(example.text.splitlines()) <= 22


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """The checks above can fail: wrong output, a wrong exit code, a broken snippet."""
    wrong = {
        "output": "```console\n$ echo one\ntwo\n```\n",
        "exit code": "```console\n$ false\n```\n",
        "asked exit code": "```console\n$ false\n$ echo $?\n0\n```\n",
        "python": "```python\nassert 1 == 2\n```\n",
        "printed": "```python\nprint(1)\n```\n```text\n2\n```\n",
    }
    for name, text in wrong.items():
        with pytest.raises(AssertionError):
            read(name, text, tmp_path)


def test_a_page_that_is_right_passes(tmp_path: Path) -> None:
    """Blocks share state, output is compared by kind, and exit codes may be asked for."""
    right = (
        "```console\n$ A=$(printf 5)\n$ cat > a <<END\n> $A\n> END\n$ false\n$ echo $?\n1\n```\n"
        "```python\nfrom uuid import uuid4\nx = int(open('a').read())\n```\n"
        "```python\nprint(x, uuid4())\nprint(1)\nprint(2)\n```\n"
        f"```text\n5 {UUID(int=0)}\n...\n```\n"
    )
    read("right", right, tmp_path)
