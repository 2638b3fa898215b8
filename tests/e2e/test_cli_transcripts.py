"""`import --format` and `export --format`: what people have becomes runs, and goes back out."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, PROGRAM, InProcess, Processes, json_lines
from turnledger.adapters.transcripts import FORMATS, import_transcripts, read_transcripts
from turnledger.ledger import (
    NEW,
    EvaluationStarted,
    EvaluationSuperseded,
    InnerMessage,
    Ledger,
    Limits,
    MediaContent,
    MessageAppended,
    ModelReplied,
    RunStarted,
    blob_name,
    new_run_id,
)

PNG = b"\x89PNG\r\n\x1a\n pixels"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
CHAT: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64," + b64encode(PNG).decode()},
                },
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "assistant", "content": "It is a cat."},
    ],
}
HELLO = {"messages": [{"role": "user", "content": "Hello."}]}


def imported(cli: InProcess, data: Any, wire: str = "openai-chat") -> list[dict[str, Any]]:
    done = cli("import", "--format", wire, "-", "-o", "json", stdin=json.dumps(data))
    assert (done.code, done.err) == (0, "")
    runs: list[dict[str, Any]] = done.json
    return runs


def run_of(cli: InProcess, data: Any, wire: str = "openai-chat") -> str:
    (run,) = imported(cli, data, wire)
    return str(run["run_id"])


# --- in ------------------------------------------------------------------------------------


def test_a_transcript_becomes_a_run(processes: Processes, tmp_path: Path) -> None:
    """With the installed command: it can be listed, read as a chat and verified."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(CHAT, indent=2))
    done = processes("import", "--format", "openai-chat", file)
    assert (done.code, done.err) == (0, "")
    assert "imported" in done.out
    (run,) = processes("runs", "-o", "json").json
    assert (run["status"], run["prompt"]) == ("completed", "imported/openai-chat")
    assert run["tags"] == {"imported": "openai-chat"}
    shown = processes("messages", run["run_id"]).out
    for word in ("Be kind.", "What is this?", "image/png", "look [c1]", "a cat", "It is a cat."):
        assert word in shown
    assert processes("verify").code == 0
    assert processes("pending", run["run_id"], "-o", "json").json == []


def test_what_is_recorded(cli: InProcess) -> None:
    """The run's events, with sequence and turn as a live run counts them."""
    run = run_of(cli, CHAT)
    log = cli("log", run, "-o", "jsonl").lines
    assert [line["type"] for line in log] == [
        "run.started",
        "evaluation.started",
        *["message.appended"] * 5,
        "evaluation.finished",
        "run.completed",
    ]
    assert log[0]["data"]["request_type"] == "transcript"
    asked = {"format": "openai-chat", "source": "stdin", "model": "gpt-4o"}
    assert log[0]["data"]["request"] == asked
    messages = [line["data"]["message"] for line in log[2:7]]
    numbered = [(m["role"], m["sequence"], m.get("turn", 0)) for m in messages]
    assert numbered == [
        ("system", 0, 0),
        ("user", 1, 0),
        ("assistant", 2, 1),
        ("tool", 3, 1),
        ("assistant", 4, 2),
    ]
    assert messages[3]["tool_name"] == "look"
    assert log[-1]["data"]["message_id"] == messages[-1]["message_id"]
    with cli.ledger() as ledger:
        assert ledger.blob(blob_name(PNG)) == PNG


def test_importing_again_changes_nothing(cli: InProcess) -> None:
    """The same conversation is the same run: from any file, spelled in any way."""
    first = imported(cli, CHAT)[0]
    before = cli("export", "--all").out
    again = imported(cli, {"request": CHAT})[0]
    assert (first["outcome"], again["outcome"]) == ("imported", "already there")
    assert again["run_id"] == first["run_id"]
    assert cli("export", "--all").out == before


def test_json_lines_have_a_transcript_a_line(cli: InProcess) -> None:
    """Each is a run of its own; one that stands twice is there once."""
    lines = json_lines(CHAT, HELLO, CHAT)
    done = cli("import", "--format", "openai-chat", "-", "-o", "jsonl", stdin=lines)
    outcomes = [(one["place"], one["outcome"]) for one in done.lines]
    assert outcomes == [
        ("line 1", "imported"),
        ("line 2", "imported"),
        ("line 3", "already there"),
    ]
    assert len(cli("runs", "-o", "json").json) == 2


def test_a_list_of_transcripts_is_several(cli: InProcess) -> None:
    """A document that is clearly no list of messages."""
    places = [one["place"] for one in imported(cli, [CHAT, HELLO])]
    assert places == ["transcript 1", "transcript 2"]


def test_repairs_and_notes_are_told(cli: InProcess) -> None:
    """In a few lines for people, all of them as JSON, and the run has what was repaired."""
    file = {"type": "file", "file": {"file_id": "file-abc"}}
    broken = [
        *CHAT["messages"][:3],
        {"role": "tool", "tool_call_id": "gone", "content": "?"},
        {"role": "user", "content": [file] * 7},
        {"role": "assistant", "content": "Hm."},
    ]
    done = cli("import", "--format", "openai-chat", "-", stdin=json.dumps(broken))
    assert done.code == 0
    for word in ("orphan_result", "stubbed", "[4].content[0].file: file file-abc", "more: -o json"):
        assert word in done.err
    assert done.err.count("\n") == 7
    run = imported(cli, broken)[0]
    assert [repair["kind"] for repair in run["repairs"]] == ["orphan_result", "stubbed"]
    assert len(run["notes"]) == 7
    assert "did not complete" in cli("messages", run["run_id"]).out


def test_open_calls_stay_open(cli: InProcess) -> None:
    """A transcript that ends while a tool runs is a run that is not over."""
    run = run_of(cli, CHAT["messages"][:3])
    assert cli("runs", "-o", "json").json[0]["status"] == "running"
    (call,) = cli("pending", run, "-o", "json").json
    assert call["call_id"] == "c1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["stdin", "nothing in it"]),
        ("hello", ["stdin", "line 1", "no JSON"]),
        ('{"messages": [\n{"role": }]}', ["line 2", "no JSON"]),
        (json_lines(HELLO, HELLO) + "{", ["line 3", "no JSON"]),
        (json_lines(HELLO, {"messages": [{"role": "user", "content": [7]}]}),
         ["stdin", "line 2", "messages[0].content[0]"]),
        (json.dumps([HELLO, {"messages": 7}]), ["transcript 2", "messages"]),
        (json_lines(HELLO, {"messages": []}), ["line 2", "it has no messages"]),
        ('{"messages": [NaN]}', ["NaN"]),
        ("[" * 100_000, ["nested"]),
        ("[" * 300 + "]" * 300, ["nested"]),
        (b"\xff\xfe\x00", ["line 1", "UTF-8"]),
    ],
)  # fmt: skip
def test_bad_input_writes_nothing(cli: InProcess, text: str | bytes, words: list[str]) -> None:
    """It exits with 1, names the file, the line and the path, and there is no run."""
    imported(cli, CHAT)
    before = cli("export", "--all").out
    done = cli("import", "--format", "openai-chat", "-", stdin=text)
    assert (done.code, done.out) == (1, "")
    for word in words:
        assert word in done.err
    assert cli("export", "--all").out == before


def test_the_file_is_named_in_errors(cli: InProcess, tmp_path: Path) -> None:
    """As it was given."""
    file = tmp_path / "chats.jsonl"
    file.write_text('{"messages": [{"role": "robot"}]}')
    done = cli("import", "--format", "openai-chat", file)
    assert done.err.startswith(f"Error: {file}, messages[0].role: ")


def test_a_transcript_that_the_ledger_can_not_hold_writes_nothing(cli: InProcess) -> None:
    """A message beyond the limit, in the second of two: neither is recorded."""
    long = {"messages": [{"role": "user", "content": "x" * (9 * 1024 * 1024)}]}
    done = cli("import", "--format", "openai-chat", "-", stdin=json_lines(HELLO, long))
    assert (done.code, done.out) == (1, "")
    assert "line 2" in done.err
    assert cli("runs", "-o", "json").json == []


def test_a_long_transcript_takes_several_appends(tmp_path: Path) -> None:
    """Within the ledger's limit; an import that was interrupted goes on when it is repeated."""
    said = [
        {"role": ("user", "assistant")[place % 2], "content": f"Line {place}."}
        for place in range(40)
    ]
    plans = read_transcripts(json.dumps(said).encode(), "openai-chat")
    (plan,) = plans
    path = tmp_path / "runs.db"
    with Ledger.open(path, limits=Limits(max_batch_events=7)) as ledger:
        whole = plan.drafts(_moment())
        ledger.append(plan.run_id, whole[:7], NEW)
        (run,) = import_transcripts(ledger, plans)
        assert (run.outcome, ledger.head(plan.run_id)) == ("imported", len(whole))
        times = {r.event.message.created_at for r in ledger.read(plan.run_id, 2, 40)}  # type: ignore[union-attr]
        assert times == {_moment()}
        assert import_transcripts(ledger, plans)[0].outcome == "already there"
        assert ledger.verify(plan.run_id).ok


def test_many_may_import_the_same_at_once(processes: Processes, tmp_path: Path) -> None:
    """All succeed, and there is one run."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(CHAT))
    command = (PROGRAM, "import", "--format", "openai-chat", file, "-o", "json")
    several = [processes.start(*command) for _ in range(4)]
    done = [process.communicate(timeout=60) for process in several]
    assert [process.returncode for process in several] == [0] * 4, done
    outcomes = sorted(json.loads(out)[0]["outcome"] for out, _ in done)
    assert outcomes == ["already there"] * 3 + ["imported"]
    with Ledger.open(processes.db) as ledger:
        assert [info.version for info in ledger.runs()] == [9]


def test_a_run_that_somebody_went_on_with_is_left(cli: InProcess) -> None:
    """Importing its transcript again adds nothing."""
    run = run_of(cli, HELLO)
    more = {"type": "custom", "data": {"kind": "a.b"}}
    cli("append", run, "--expect", "any", stdin=json_lines(more))
    assert imported(cli, HELLO)[0]["outcome"] == "already there"


def _moment() -> datetime:
    return datetime(2025, 1, 31, tzinfo=UTC)


# --- out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", FORMATS)
def test_a_run_goes_out_and_comes_back(cli: InProcess, wire: str) -> None:
    """As every provider takes it, with its image inside; and as a run it is the same again."""
    run = run_of(cli, CHAT)
    done = cli("export", "--format", wire, run, "--model", "some-model")
    assert (done.code, done.err) == (0, "Exported 1 conversation.\n")
    assert b64encode(PNG).decode() in done.out
    assert "\n  " in done.out
    back = run_of(cli, done.json, wire)
    first, second = (cli("messages", one).out for one in (run, back))
    assert second.replace("call_1", "c1") == first


def test_the_same_format_gives_the_same_body(cli: InProcess) -> None:
    """Text for text, but for the label before the image."""
    body = cli("export", "--format", "openai-chat", run_of(cli, CHAT)).json
    label = body["messages"][1]["content"].pop(1)
    assert label == {"type": "text", "text": "Media 1:"}
    assert body == CHAT


def test_several_runs_are_json_lines(cli: InProcess, tmp_path: Path) -> None:
    """And with --all, runs without messages are left out."""
    runs = [run_of(cli, CHAT), run_of(cli, HELLO)]
    with cli.ledger() as ledger:
        ledger.append(new_run_id(), [RunStarted()], NEW)
    named = cli("export", "--format", "openai-chat", *runs).lines
    file = tmp_path / "all.jsonl"
    done = cli("export", "--format", "openai-chat", "--all", "-O", file)
    assert (done.out, done.err) == ("", "Exported 2 conversations.\n")
    assert [json.loads(line) for line in file.read_text().splitlines()] == named
    assert named[1]["messages"] == HELLO["messages"]
    assert list(tmp_path.glob("*.part")) == []


def test_a_model_of_another_provider_is_not_named(cli: InProcess) -> None:
    """The recorded one goes where it came from; another has to be given."""
    run = run_of(cli, CHAT)
    assert cli("export", "--format", "openai-responses", run).json["model"] == "gpt-4o"
    assert "model" not in cli("export", "--format", "anthropic", run).json
    given = cli("export", "--format", "anthropic", run, "--model", "claude-x").json
    assert given["model"] == "claude-x"


@pytest.mark.parametrize(("incomplete", "count"), [("stub", 4), ("skip", 2)])
def test_calls_at_the_end(cli: InProcess, incomplete: str, count: int) -> None:
    """Calls without a result get a stub, or are left out."""
    run = run_of(cli, CHAT["messages"][:3])
    body = cli("export", "--format", "openai-chat", run, "--incomplete", incomplete).json
    assert len(body["messages"]) == count
    default = cli("export", "--format", "openai-chat", run).json
    assert (body == default) is (incomplete == "stub")


def test_media_that_a_format_can_not_take(cli: InProcess, tmp_path: Path) -> None:
    """An error that names the run and leaves no file, or a line of text."""
    film = MediaContent(modality="video", url="https://example.com/a.mp4", prompt_hint="a film")
    said = InnerMessage(role="user", content="", evaluation_id="e", sequence=0, parts=(film,))
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(), MessageAppended(message=said)], NEW)
    file = tmp_path / "body.json"
    refused = cli("export", "--format", "anthropic", run, "-O", file)
    assert (refused.code, file.exists()) == (1, False)
    assert str(run) in refused.err
    hinted = cli("export", "--format", "anthropic", run, "--unsupported-media", "hint")
    assert "a film" in hinted.json["messages"][0]["content"][0]["text"]


@pytest.fixture
def twice(cli: InProcess) -> UUID:
    """A run with an evaluation that was superseded, with thinking, and a later one."""
    run = new_run_id()
    events: list[Any] = [RunStarted()]
    for name in ("first", "second"):
        events.append(
            EvaluationStarted(evaluation_id=name, prompt_ns="a", prompt_key="b", prompt_digest="")
        )
        for number, role in enumerate(("user", "assistant")):
            message = InnerMessage(
                role=role,  # type: ignore[arg-type]
                content=f"{role} {name}",
                evaluation_id=name,
                sequence=number,
                turn=number,
            )
            events.append(MessageAppended(message=message))
        if name == "first":
            thinking = {"type": "redacted_thinking", "data": "eA=="}
            text = {"type": "text", "length": 15, "digest": _mark("assistant first")}
            events.append(
                ModelReplied(
                    evaluation_id=name,
                    turn=1,
                    message_id=message.message_id,
                    model="claude-first",
                    provider_data={"provider": {"anthropic": [thinking, text]}, "place": 2},
                )
            )
            events.append(EvaluationSuperseded(evaluation_id=name))
    with cli.ledger() as ledger:
        ledger.append(run, events, NEW)
    return run


def _mark(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def test_evaluations(cli: InProcess, twice: UUID) -> None:
    """The latest by default; another by its id, with the model and the thinking of that one."""
    latest = cli("export", "--format", "anthropic", twice).json
    first = cli("export", "--format", "anthropic", twice, "--evaluation", "first").json
    assert latest["messages"][0]["content"][0]["text"] == "user second"
    assert first["model"] == "claude-first"
    kinds = [block["type"] for block in first["messages"][1]["content"]]
    assert kinds == ["redacted_thinking", "text"]
    unknown = cli("export", "--format", "anthropic", twice, "--evaluation", "third")
    assert (unknown.code, unknown.out) == (3, "")
    assert "first, second" in unknown.err


def test_a_run_that_is_not_there_and_one_that_is_empty(cli: InProcess) -> None:
    """Exit with 3, and with 1."""
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted()], NEW)
    assert cli("export", "--format", "gemini", NOBODY).code == 3
    empty = cli("export", "--format", "gemini", run)
    assert (empty.code, empty.out) == (1, "")
    assert str(run) in empty.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", NOBODY, "--model", "x"),
        ("export", NOBODY, "--incomplete", "skip"),
        ("export", "--format", "morse", NOBODY),
        ("export", "--format", "gemini"),
        ("export", "--format", "gemini", "--all", "--evaluation", "e"),
        ("import", "--format", "morse", "-"),
        ("import", "--format", "gemini", "/nowhere"),
    ],
)
def test_usage_errors_exit_2(cli: InProcess, arguments: tuple[str, ...]) -> None:
    """Options that go with --format only, unknown formats, no file."""
    assert cli(*arguments).code == 2


def test_a_transcript_that_is_taken_for_an_export_is_told_how_to_say_so(
    cli: InProcess, tmp_path: Path
) -> None:
    """The file is not an export, and the formats that it may be of are named."""
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "user", "content": "Hello."}]')
    done = cli("import", file)
    assert done.code == 5
    assert "not an export" in done.err
    assert "--format openai-chat|openai-responses|anthropic|gemini" in done.err
