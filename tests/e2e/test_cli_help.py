"""Help, version, exit codes and shell completion: the command explains itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from types import ModuleType
from uuid import UUID

import click
import pytest

from tests.e2e.driving import InProcess, Processes
from turnledger import ledger, projections
from turnledger.adapters.cli import turnledger
from turnledger.adapters.cli.shared.command import LazyGroup, LedgerCommand
from turnledger.adapters.cli.shared.exit_codes import ERRORS, MEANINGS, ExitCode, exit_code_of
from turnledger.ledger import NEW, RunStarted, TurnledgerError, new_run_id
from turnledger.runtime import errors
from turnledger.runtime.recovery import approvals

COMMANDS = turnledger.load_all()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(cli: InProcess, name: str) -> None:
    """Each command has a one-line summary, help for each option, and an example of itself."""
    command = COMMANDS[name]
    assert isinstance(command, LedgerCommand)
    summary = (command.help or "").partition("\n")[0]
    assert summary
    assert summary.endswith((".", "?"))
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.name}"
    assert f"turnledger {name}" in command.example
    shown = cli(*name.split(), "--help")
    assert shown.code == 0
    assert summary in shown.out
    assert command.example.splitlines()[0] in shown.out


def test_help_lists_commands_and_exit_codes(cli: InProcess) -> None:
    """The command's own help names every command, whole, and every exit code."""
    shown = cli("--help").out
    for name, command in turnledger.commands.items():
        summary = (command.help or "").partition("\n")[0]
        assert f"{name} " in shown
        assert summary.rstrip(".") in shown
    for code, meaning in MEANINGS.items():
        assert f"{int(code)} " in shown
        assert meaning in shown
    assert set(MEANINGS) == set(ExitCode)


def errors_of(module: ModuleType) -> list[type[TurnledgerError]]:
    kinds = (getattr(module, name) for name in dir(module))
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, TurnledgerError)]


def test_every_error_has_an_exit_code() -> None:
    """Whatever the project raises on purpose, the table knows a code for it."""
    kinds = errors_of(ledger)
    assert len(kinds) > 20
    for kind in kinds:
        assert exit_code_of(kind.__new__(kind)) in ExitCode
    named = {
        kind.__name__
        for module in (ledger, projections, errors, approvals)
        for kind in errors_of(module)
    }
    assert set(ERRORS) <= named


def test_short_helps_in_the_table_are_the_commands_own() -> None:
    """What `turnledger --help` lists without loading a command is what the command says."""
    for group in (turnledger, turnledger.commands["prompts"], turnledger.commands["token"]):
        assert isinstance(group, LazyGroup)
        for name, (_, text) in group.table.items():
            assert text == group.commands[name].get_short_help_str(limit=200), name


def imported(code: str) -> set[str]:
    """The modules that a new process has imported after this code."""
    code = f"{code}\nimport sys; print(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_ledger(option: str) -> None:
    """Protects the start-up time: only click and the table of commands are needed."""
    modules = imported(
        "from turnledger.adapters.cli import turnledger\n"
        f"turnledger([{option!r}], standalone_mode=False)"
    )
    ours = {name for name in modules if name.startswith("turnledger.")}
    assert {name.split(".")[1] for name in ours} == {"_lazy", "adapters"}
    assert not modules & {"msgspec", "rich", "eventsourcing", "pydantic", "importlib.metadata"}


def test_a_command_imports_only_what_it_needs() -> None:
    """Protects the start-up time: commands are loaded without rich, providers and drivers."""
    modules = imported("from turnledger.adapters.cli import turnledger; turnledger.load_all()")
    assert not modules & {"rich", "psycopg", "cryptography", "openai", "anthropic", "litellm"}


def test_the_installed_command_has_a_version(processes: Processes) -> None:
    """`turnledger --version` prints the distribution's version."""
    done = processes("--version")
    assert (done.code, done.out) == (0, f"turnledger {version('turnledger')}\n")


def test_no_command_is_a_usage_error(processes: Processes) -> None:
    """Without a command the help is shown, as a usage error."""
    done = processes()
    assert (done.code, done.out) == (2, "")
    assert "Usage: turnledger" in done.err


def test_a_mistyped_command_is_a_usage_error(cli: InProcess) -> None:
    """An unknown command is refused; click 8.4 and newer suggest the nearest names."""
    done = cli("mesages")
    assert (done.code, done.out) == (2, "")
    assert "No such command 'mesages'." in done.err
    if hasattr(click.exceptions, "NoSuchCommand"):
        assert "messages" in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(cli: InProcess, shell: str) -> None:
    """Each shell gets its script, which asks the command itself."""
    done = cli("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_TURNLEDGER_COMPLETE={shell}_complete" in done.out
    assert cli("completion", "tcsh").code == 2


def test_the_bash_script_is_valid(cli: InProcess) -> None:
    """bash accepts its script."""
    script = cli("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0


def completions(processes: Processes, words: str, **env: str) -> list[str]:
    """What bash is offered after these words."""
    done = processes(
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
        _TURNLEDGER_COMPLETE="bash_complete",
        **env,
    )
    assert done.err == ""
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


def test_run_ids_complete_from_the_ledger(processes: Processes, cli: InProcess) -> None:
    """Runs are offered by their ids, from --db too; where no ledger is, none and no error."""
    runs: list[UUID] = [new_run_id(), new_run_id()]
    with cli.ledger() as book:
        for run in runs:
            book.append(run, [RunStarted()], NEW)
    ids = sorted(map(str, runs))
    assert sorted(completions(processes, "turnledger log ")) == ids
    assert completions(processes, f"turnledger show {ids[0]}") == [ids[0]]
    by_option = completions(
        processes, f"turnledger --db {processes.db} fork ", TURNLEDGER_DB="/nowhere/x.db"
    )
    assert sorted(by_option) == ids
    assert completions(processes, "turnledger log ", TURNLEDGER_DB="/nowhere/x.db") == []


def test_event_types_complete(processes: Processes) -> None:
    """`--type` offers the event types."""
    offered = completions(processes, "turnledger tail --type tool_call.s")
    assert offered == ["tool_call.started"]
