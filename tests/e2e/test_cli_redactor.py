"""The command and secrets: what it writes, what it says, and the rules that it is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.driving import InProcess, Processes
from tests.secret_samples import MAKERS, samples
from turnledger.ledger import NEW, CustomEvent, Ledger, RunStarted, export_runs, new_run_id

KEY, OTHER = (sample.text for sample in samples(4, 2, ["github-token"]))


def _custom(data: object, **more: object) -> str:
    return json.dumps({"type": "custom", "data": {"kind": "acme.note", "data": data}, **more})


def _bytes(folder: Path) -> str:
    found = b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())
    return found.decode("latin-1")


def _export(to: Path, *secrets: str) -> list[str]:
    """A file of a ledger that kept its secrets; the ids of its runs."""
    with Ledger.open("memory://", redactor=None) as careless, to.open("wb") as file:
        runs = [new_run_id() for _ in secrets]
        for run, secret in zip(runs, secrets, strict=True):
            careless.append(run, [RunStarted(), CustomEvent(kind="a.b", data=secret)], NEW)
        export_runs(careless, file)
    return [str(run) for run in runs]


def test_secrets_of_every_format_are_in_no_file_and_in_nothing_said(
    processes: Processes, tmp_path: Path
) -> None:
    """The command is one more way in: appended, imported, as a transcript and as an export."""
    made = samples(8, 3)
    assert len({sample.format for sample in made}) == len(MAKERS)
    folder = tmp_path / "ledger"
    folder.mkdir()
    processes.db = folder / "runs.db"
    events = "\n".join(_custom({"note": s.text, s.text: 1}) for s in made)
    chats = {
        "messages": [
            {"role": "user", "content": "\n".join(s.text for s in made)},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "f", "arguments": json.dumps({"x": s.text})},
                    }
                    for s in made[:1]
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": made[-1].text},
        ]
    }
    file = tmp_path / "careless.jsonl"
    _export(file, *(s.text for s in made))
    done = [
        processes("append", "new", "-", stdin=events),
        processes("import", "--format", "openai-chat", "-", stdin=json.dumps(chats)),
        processes("import", file),
        processes("import", file, "-o", "json"),
        processes("tail", "-o", "jsonl"),
        processes("verify"),
    ]
    assert [one.code for one in done] == [0] * len(done), [one.err for one in done]
    everything = _bytes(folder) + "".join(one.out + one.err for one in done)
    spelt = [(s, json.dumps(s.secret)[1:-1]) for s in made]
    missed = [s for s, once in spelt if s.secret in everything or once in everything]
    assert missed == []


def test_an_import_says_which_runs_have_other_digests(cli: InProcess, tmp_path: Path) -> None:
    """Who keeps digests elsewhere has to know which of them no longer hold."""
    file = tmp_path / "careless.jsonl"
    dirty, clean = _export(file, KEY, "nothing")
    done = cli("import", file)
    assert done.code == 0
    assert "differ from the file's" in done.err
    assert dirty in done.err
    assert clean not in done.err
    again = cli("import", file, "-o", "json").json
    assert (again["imported"], again["redacted"], again["rechained"]) == (0, 1, [dirty])
    assert cli("verify").code == 0


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "redactor.toml"
    file.write_text(
        'fields = ["pin"]\n[[patterns]]\nname = "acme-token"\nregex = "ACME-[0-9]{6}"\n'
    )
    return file


@pytest.mark.parametrize("how", ["after", "before", "environment"])
def test_rules_of_ones_own_come_from_a_file(cli: InProcess, rules: Path, how: str) -> None:
    """The same file as a program reads, given as any other option is."""
    event = _custom({"note": f"ACME-123456 {KEY}", "pin": 7})
    if how == "after":
        done = cli("append", "new", "-", "--redactor", rules, stdin=event)
    elif how == "before":
        done = cli("--redactor", rules, "append", "new", "-", stdin=event)
    else:
        done = cli("append", "new", "-", stdin=event, TURNLEDGER_REDACTOR=str(rules))
    assert done.code == 0, done.err
    assert cli("tail", "-o", "json").json[-1]["data"]["data"] == {
        "note": "[redacted: acme-token] [redacted: github-token]",
        "pin": "[redacted: pin]",
    }


def test_without_a_redactor_everything_is_kept(cli: InProcess, rules: Path) -> None:
    """It can be turned off for one command, whatever the environment says."""
    done = cli(
        "append", "new", "-", "--no-redactor", stdin=_custom(KEY), TURNLEDGER_REDACTOR=str(rules)
    )
    assert done.code == 0, done.err
    assert cli("tail", "-o", "json").json[-1]["data"]["data"] == KEY


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("fields = 1", "fields: expected a list"),
        (
            "[[patterns]]\nname='x'\nregex='('",
            "patterns[0]: Pattern 'x': invalid regular expression",
        ),
        (None, "can't be read"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_and_nothing_is_written(
    cli: InProcess, tmp_path: Path, content: str | None, says: str
) -> None:
    """Continuing without the requested rules would record the secrets."""
    file = tmp_path / "redactor.toml"
    if content is not None:
        file.write_text(content)
    done = cli("--redactor", file, "append", "new", "-", stdin=_custom(KEY))
    assert done.code != 0
    assert says in done.err
    assert not cli.db.exists()


@pytest.mark.parametrize(
    ("command", "stdin"),
    [
        (["show", KEY, "1"], ""),
        (["append", "new", "-"], f'{{"type": "{KEY}"}}'),
        (["append", "new", "-"], f'{{"type": "run.resumed", "data": {{"{KEY}": 1}}}}'),
        (["append", "new", "-"], f'{{"type": "custom", "data": {{"kind": "x.{KEY}"}}}}'),
        (["append", "new", "-"], f"{KEY} is no JSON"),
        (["--db", f"postgress://app:{KEY}@db/x", "runs"], ""),
        (["--db", f"postgresql://app:{KEY}@127.0.0.1:1/x?connect_timeout=1", "runs"], ""),
        (["import", "--format", KEY, "-"], ""),
        ([KEY], ""),
    ],
)
def test_what_went_wrong_is_said_without_the_secret(
    cli: InProcess, command: list[str], stdin: str
) -> None:
    """A secret in the wrong place is masked in the error that quotes it."""
    done = cli(*command, stdin=stdin)
    assert done.code != 0
    assert KEY not in done.err + done.out
    assert OTHER not in done.err + done.out
