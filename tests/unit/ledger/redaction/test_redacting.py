"""The redactor: one's own rules, marks, events, and what is said when something is refused."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import pytest

from turnledger.ledger import (
    ANY,
    NEW,
    CheckpointReached,
    CustomEvent,
    Draft,
    Event,
    InnerMessage,
    InvalidEventError,
    InvalidInputError,
    InvalidUrlError,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RedactedStateError,
    Redactor,
    ResourceSnapshotted,
    RunStarted,
    SecretPattern,
    StoreUnavailableError,
    ToolCallCompleted,
    ToolCallRecord,
    blob_name,
    new_run_id,
)
from turnledger.ledger.redaction.events import redacted
from turnledger.ledger.redaction.safe_logging import logger_of

KEY = "sk-ant-api03-" + "aB3_" * 23 + "xAA"
TOKEN = "ghp_" + "aB3" * 12


def _message(content: str, **more: Any) -> MessageAppended:
    return MessageAppended(
        message=InnerMessage(role="user", content=content, evaluation_id="e", sequence=0, **more)
    )


# --- rules of one's own ----------------------------------------------------------------


def test_ones_own_pattern_is_marked_with_its_name() -> None:
    """A company's own tokens are in no list."""
    redactor = Redactor(patterns=[SecretPattern("acme-token", r"ACME-[0-9]{6}")])
    assert redactor.text("use ACME-123456 now") == "use [redacted: acme-token] now"
    assert TOKEN not in redactor.text(TOKEN)


def test_of_a_pattern_with_a_group_only_the_group_is_taken_out() -> None:
    """What stands around a secret says what it was for."""
    redactor = Redactor(patterns=[SecretPattern("pin", r"PIN is (?P<secret>\d+)")])
    assert redactor.text("The PIN is 1234.") == "The PIN is [redacted: pin]."


def test_a_pattern_for_a_field_is_looked_for_only_there() -> None:
    """A short pattern is right in one field, and wrong everywhere else."""
    redactor = Redactor(patterns=[SecretPattern("pin", r"\d{4}", fields=["card.pin"])])
    given = {"card": {"pin": "1234", "year": "2031"}, "pin": "5678", "text": "in 2031"}
    assert redactor.value(given) == {**given, "card": {"pin": "[redacted: pin]", "year": "2031"}}


def test_of_a_field_everything_is_taken_out() -> None:
    """A password looks like nothing in particular, and a PIN like a number."""
    redactor = Redactor(fields=["password", "card.pin"])
    given = {
        "Password": "hunter2",
        "card": {"pin": 1234, "holder": "Anna"},
        "pin": 5,
        "users": [{"password": {"old": "a", "new": ["b", "c"], "set": True}}],
        "empty": {"password": ""},
    }
    mark = "[redacted: password]"
    assert redactor.value(given) == {
        "Password": mark,
        "card": {"pin": "[redacted: card.pin]", "holder": "Anna"},
        "pin": 5,
        "users": [{"password": {"old": mark, "new": [mark, mark], "set": True}}],
        "empty": {"password": ""},
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"user": "a", "password": "hun\\"ter2"}',
        '[{"deep": "{\\"password\\": \\"hunter2\\"}"}]',
        'called with {"password": "hunter2"} and failed',
        'log: "{\\"password\\": \\"hunter2\\"}"',
        '{"password": "hunter2',
        'so: {"password": 4711}',
    ],
)
def test_a_field_is_found_in_json_text_too(text: str) -> None:
    """The arguments of a call are JSON in a string, and errors quote them in part."""
    found = Redactor(fields=["password"]).text(text)
    assert "ter2" not in found
    assert "4711" not in found
    assert "[redacted: password]" in found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Only what is secret changes: spaces, digits, keys that are there twice and halves stay.
        (
            '{"pin": 1234, "x":1e400, "a":1,"a":2, "f": 0.10, "s":"\\ud800"}',
            '{"pin": "M", "x":1e400, "a":1,"a":2, "f": 0.10, "s":"\\ud800"}',
        ),
        ('log: {"pin": {"a": ["1234", 5]}} end', 'log: {"pin": {"a": ["M", "M"]}} end'),
        ('{"a":1}\n{"pin": {"v":"12"}}\n', '{"a":1}\n{"pin": {"v":"M"}}\n'),
        ('x {"order": {"number": 7}, "card": {"number": 8}}', None),
        ('got {"reply": "4711"} ok', 'got {"reply": "[redacted: code]"} ok'),
        ('x {"pi\\u006e":"1234"}', 'x {"pi\\u006e":"M"}'),
    ],
)
def test_json_in_text_is_redacted_where_it_stands(given: str, expected: str | None) -> None:
    """The arguments of a call that come back changed are other arguments."""
    redactor = Redactor(
        fields=["pin", "card.number"],
        patterns=[SecretPattern("code", "[0-9]{4}", fields=["reply"])],
    )
    if expected is None:
        expected = given.replace("8", '"[redacted: card.number]"')
    found = redactor.text(given)
    assert found == expected.replace('"M"', '"[redacted: pin]"')
    assert redactor.text(found) == found


def test_a_field_is_found_in_json_within_json_within_json() -> None:
    """Each tool that passes on what it got makes one string more of it."""
    text = '{"pin": "1234"}'
    for _ in range(7):
        text = json.dumps({"k": text})
        assert "1234" not in Redactor(fields=["pin"]).text(text)
        assert "1234" not in Redactor(fields=["pin"]).text(f"said {text}")


@pytest.mark.parametrize("piece", ['{"pin":"', '{"a":', '"pin":"a\\', '\\"{', "[", '"{\\"', "{"])
def test_looking_for_fields_takes_no_longer_than_the_text_is_long(piece: str) -> None:
    """What is no JSON after all is not begun again from every bracket."""
    redactor = Redactor(fields=["pin"])

    def calls(size: int) -> int:
        count = 0

        def called(_: FrameType, kind: str, __: object) -> None:
            nonlocal count
            count += kind.endswith("call")

        before = sys.getprofile()
        sys.setprofile(called)
        try:
            redactor.text('"pin" ' + piece * (size // len(piece)))
        finally:
            sys.setprofile(before)
        return count

    calls(100)  # compiles what is needed once
    assert calls(16_000) <= 10 * (calls(2_000) + 500)


def test_marks_stay_whatever_a_pattern_matches() -> None:
    """A pattern that matches its own mark would change a record each time it is appended."""
    redactor = Redactor(patterns=[SecretPattern("word", r"[a-z]{3,}")], fields=["password"])
    once = redactor.value({"password": "x", "A": f"token {TOKEN}"})
    assert redactor.value(once) == once
    assert once == {
        "[redacted: word]": "[redacted: password]",
        "A": "[redacted: word] [redacted: github-token]",
    }


def test_many_secrets_as_keys_take_no_longer_than_others() -> None:
    """Each looks for a name that nothing has yet: not from the beginning, every time."""
    keys = {f"AKIA{number:016d}": number for number in range(50_000)}
    found = Redactor().value(keys)
    assert list(found.values()) == list(keys.values())


def test_keys_are_redacted_and_none_is_lost() -> None:
    """Two secrets as keys are two entries, also when their marks are the same."""
    other = "ghp_" + "xY7" * 12
    found = Redactor().value({TOKEN: 1, "a": 2, other: 3})
    assert list(found.values()) == [1, 2, 3]
    assert not any(TOKEN in key or other in key for key in found)
    assert Redactor().value(found) is found


# --- rules that are none ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("regex", "says"),
    [
        ("(", "invalid regular expression"),
        ("a{" + "9" * 5000 + "}", "invalid regular expression"),
        ("a*", "matches empty text"),
        ("(x|(?:y*z)+)*", "matches empty text"),
        # RE2 can't run these either.
        ("x(?:a{0,50}){0,50}y", "RE2 does not run it"),
        ("(?:[a-z]++-)+x", "RE2 does not run it"),
        (r"(a+)\1+b", "RE2 does not run it"),
        ("(?<=a)b+c", "RE2 does not run it"),
    ],
)
def test_a_pattern_that_can_not_work_is_refused(regex: str, says: str) -> None:
    """One that takes for ever would stop every append, one that matches all would mark all."""
    with pytest.raises(InvalidInputError, match=says) as caught:
        SecretPattern("mine", regex)
    assert "mine" in str(caught.value)


# Each takes `re` more than linear time on a long text: of a letter, and then another.
SLOW = (
    "(a+)+b",
    "(?:[a-z]+,?)*x",
    "x(?:a|aa)+$",
    "(?:a?){60}b",
    "(a?){30}a{30}",
    "a*a*b",
    "[a-z]+-[0-9]+",
    "(?:a|b)+c",
)


@pytest.mark.parametrize("regex", SLOW)
def test_a_pattern_with_many_ways_to_match_needs_re2(
    regex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold up every append, for a text of another author."""
    redactor = Redactor(patterns=[SecretPattern("mine", regex)], formats=[])
    assert redactor.text("a" * 29 + "-") == "a" * 29 + "-"
    assert len(redactor.text("a" * 100_000)) <= 100_000
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidInputError, match=r"turnledger\[re2\]"):
        SecretPattern("mine", regex)


def test_places_in_the_search_by_re2_are_characters() -> None:
    """It searches bytes, of which a letter may have several."""
    redactor = Redactor(patterns=[SecretPattern("mine", "é(?P<secret>(b+)+)c")], formats=[])
    mark = "[redacted: mine]"
    assert redactor.text("ééébbbc \U0001f600ébc ü") == f"ééé{mark}c \U0001f600é{mark}c ü"


@pytest.mark.parametrize(
    "regex",
    [
        "ACME-[0-9]+",
        r"PIN is (?P<secret>\d+)",
        "x{2,5}|y+",
        "[A-Za-z0-9]{20,200}-x",
        "(?:[0-9]{4}-){3}[0-9]{4}",
        "(?>a{1,40})b",
    ],
)
def test_a_pattern_with_few_ways_to_match_needs_no_extra(
    regex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the advice of the error says must be accepted, and mean the same with the extra."""
    monkeypatch.setitem(sys.modules, "re2", None)
    SecretPattern("mine", regex)


@pytest.mark.parametrize("name", ["", "a b", "x]", "ä", "x" * 65, 3])
def test_a_name_that_can_not_be_marked_is_refused(name: Any) -> None:
    """A bracket in a name would end its mark."""
    with pytest.raises(InvalidInputError, match="name of a"):
        SecretPattern(name, "x")
    with pytest.raises(InvalidInputError, match="name of a field"):
        Redactor(fields=[name])


def test_an_unknown_format_is_refused() -> None:
    """A misspelt format would leave its secrets in."""
    with pytest.raises(InvalidInputError, match="formats: unknown format 'openai'"):
        Redactor(formats=["openai"])
    with pytest.raises(InvalidInputError, match="expected a list of names"):
        Redactor(formats="openai-key")
    with pytest.raises(InvalidInputError, match="SecretPattern"):
        Redactor(patterns=["x"])  # type: ignore[list-item]


def test_rules_are_read_from_a_file(tmp_path: Path) -> None:
    """One file serves the program and the command."""
    file = tmp_path / "redactor.toml"
    file.write_text(
        'formats = ["github-token"]\nalso = ["password"]\nfields = ["pin"]\n'
        "[[patterns]]\nname = 'acme'\nregex = 'ACME-[0-9]+'\nfields = ['note']\n"
    )
    redactor = Redactor.read(file)
    given = {"note": "ACME-1", "text": f"ACME-1 {TOKEN} {KEY} password=abcd", "pin": 7}
    assert redactor.value(given) == {
        "note": "[redacted: acme]",
        "text": f"ACME-1 [redacted: github-token] {KEY} password=[redacted: password]",
        "pin": "[redacted: pin]",
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("formats = [", "not valid TOML"),
        ("formats = ['nope']", "formats: unknown format 'nope'"),
        ("also = 'password'", "also: expected a list of names"),
        ("fields = ['a b']", "name of a field"),
        ("patern = 1", "patern: unknown key"),
        ("patterns = 1", "patterns: expected tables"),
        ("[[patterns]]\nname = 'a'", r"patterns\[0\].regex: required"),
        ("[[patterns]]\nname = 'a'\nregex = '('", r"patterns\[0\]: Pattern 'a': invalid regular"),
        ("[[patterns]]\nname = 'a'\nregex = 'a'\nx = 1", r"patterns\[0\].x: unknown key"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, content: str, says: str) -> None:
    """Rules that are silently left out are secrets that are silently kept."""
    file = tmp_path / "redactor.toml"
    file.write_text(content)
    with pytest.raises(InvalidInputError, match=says) as caught:
        Redactor.read(file)
    assert str(file) in str(caught.value)
    with pytest.raises(InvalidInputError, match="can't be read"):
        Redactor.read(tmp_path / "none.toml")


# --- events ----------------------------------------------------------------------------


def test_text_of_a_message_is_redacted_wherever_it_is() -> None:
    """Every field with free text can hold a secret."""
    event = _message(
        f"key {KEY}",
        tool_calls=(ToolCallRecord("c1", "run", json.dumps({"token": TOKEN})),),
        value={"found": [KEY]},
        error_message=f"refused: {KEY}",
    )
    with Ledger.open("memory://") as ledger:
        made = ledger.redact(event)
    assert isinstance(made, MessageAppended)
    assert KEY not in repr(made)
    assert TOKEN not in repr(made)
    assert made.message.message_id == event.message.message_id
    assert json.loads(made.message.tool_calls[0].arguments) == {"token": "[redacted: github-token]"}


def test_ids_and_digests_are_never_taken_for_secrets() -> None:
    """A user's pattern that matches hex would make every run unreadable."""
    greedy = Redactor(patterns=[SecretPattern("hex", r"[0-9a-f-]{8,}")])
    name = blob_name(b"x")
    events: list[Event] = [
        CheckpointReached(
            phase="initialized",
            tool_calls_completed=0,
            state_digest="ab" * 32,
            outcome_digest="cd" * 32,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        ModelCalled(evaluation_id=str(uuid4()), turn=1, request_digest="ef" * 32),
        ResourceSnapshotted(resource="files", files={"a.txt": name}, digest="ab" * 32),
        RunStarted(request_id=uuid4(), session_id=uuid4()),
    ]
    for event in events:
        assert redacted(event, greedy) is event
    said = _message("x", tool_call_id=str(uuid4()))
    assert redacted(said, greedy) is said


def test_a_file_whose_name_is_redacted_is_not_removed() -> None:
    """Recorded again, its mark is among the names that are gone: that must not lose the file."""
    first = ResourceSnapshotted(resource="files", files={f"{TOKEN}.txt": blob_name(b"x")})
    again = ResourceSnapshotted(
        resource="files",
        files={f"{TOKEN}.txt": blob_name(b"y")},
        removed=("[redacted: github-token].txt", "other.txt"),
    )
    made = redacted(again, Redactor())
    assert isinstance(made, ResourceSnapshotted)
    assert made.files == {"[redacted: github-token].txt": blob_name(b"y")}
    assert made.removed == ("other.txt",)
    found = redacted(first, Redactor())
    assert isinstance(found, ResourceSnapshotted)
    assert found.files.keys() == made.files.keys()


def test_opaque_data_of_a_provider_stays() -> None:
    """A signature that came back changed would be refused by the provider."""
    signature = "EqQB" + "sk-AKIAeyJghp_xoxb-" * 40 + "=="
    event = ModelReplied(
        evaluation_id="e", turn=1, message_id=uuid4(), provider_data={"signature": signature}
    )
    assert redacted(event, Redactor()) is event


def test_an_event_without_secrets_is_the_very_same() -> None:
    """What is not changed is not made again: that is what keeps an append cheap."""
    event = _message("nothing to see, https://example.com/implementation?page=2")
    assert redacted(event, Redactor()) is event


# --- the ledger ------------------------------------------------------------------------


def test_retrying_an_append_with_a_secret_is_a_duplicate() -> None:
    """The same drafts are the same record: else a retry would be a conflict."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        drafts = [Draft(RunStarted(tags={"key": TOKEN}), uuid4()), Draft(_message(KEY), uuid4())]
        first = ledger.append(run, drafts, NEW)
        again = ledger.append(run, drafts, NEW)
        assert again.duplicate
        assert again.digest == first.digest
        assert ledger.verify(run).ok
        # What was recorded can be appended under its ids, too.
        recorded = [Draft(r.event, r.event_id) for r in first.records]
        assert ledger.append(run, recorded, NEW).duplicate


def test_tags_claims_and_forks_are_redacted() -> None:
    """The index and the leases are in the same file as the events."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        claim = ledger.begin(run, RunStarted(tags={"key": TOKEN}), worker=f"w {TOKEN}")
        assert ledger.claim(run, worker=f"w {TOKEN}").epoch == claim.epoch
        assert ledger.worker_of(run) == "w [redacted: github-token]"
        claim.release()
        fork = ledger.fork(run, ledger.head(run), tags={"from": KEY})
        assert ledger.run(run).tags == {"key": "[redacted: github-token]"}
        assert ledger.run(fork).tags == {"from": "[redacted: anthropic-key]"}
        assert TOKEN not in repr([r.row for r in ledger.tail()])


def test_a_ledger_without_a_redactor_keeps_everything() -> None:
    """Who has reasons can turn it off."""
    with Ledger.open("memory://", redactor=None) as ledger:
        ledger.append(new_run_id(), [RunStarted(), _message(KEY)], NEW)
        assert KEY in repr([r.row for r in ledger.tail()])
        assert ledger.redact_text(KEY) == KEY


def test_a_secret_where_no_mark_fits_is_refused_and_not_quoted() -> None:
    """The kind of a custom event has no room for a mark: nothing is written, nothing shown."""
    with Ledger.open("memory://") as ledger:
        with pytest.raises(InvalidEventError) as caught:
            ledger.append(new_run_id(), CustomEvent(kind=f"acme.{TOKEN}"), ANY)
        assert not list(ledger.tail())
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_what_is_refused_is_not_quoted_with_its_secret() -> None:
    """Errors are written to logs and screens, which are not protected."""
    wrong: list[Event] = [
        CustomEvent(kind="acme.x", data={KEY: {1, 2}}),
        RunStarted(request_type=KEY * 8),
        RunStarted(tags={"a": (KEY, 1)}),  # type: ignore[dict-item]
        RunStarted(tags={1: f"{'x' * 60} {TOKEN}"}),  # type: ignore[dict-item]
        CustomEvent(kind=f"{KEY} is no kind"),
        CheckpointReached(
            phase=KEY,  # type: ignore[arg-type]
            tool_calls_completed=0,
            state_digest="",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        _message("x", step_num=KEY),
        _message("x", parts=(KEY,)),
    ]
    with Ledger.open("memory://") as ledger:
        for event in wrong:
            with pytest.raises(InvalidInputError) as caught:
                ledger.append(new_run_id(), event, ANY)
            told = "".join(traceback.format_exception(caught.value))
            assert KEY[:60] not in told, told
            assert TOKEN[:20] not in told, told  # also not where it is cut


def test_an_append_whose_outcome_is_unknown_carries_no_secret() -> None:
    """The drafts of the error are what a program logs, and appends again."""
    with Ledger.open("memory://") as ledger:
        run, event_id = new_run_id(), uuid4()

        def fails(work: Any) -> Any:
            raise StoreUnavailableError("gone")

        write, ledger.store.write = ledger.store.write, fails  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError) as caught:
            ledger.append(run, [Draft(_message(KEY), event_id)], NEW)
        ledger.store.write = write  # type: ignore[method-assign]
        assert KEY not in repr(caught.value.drafts)
        assert caught.value.drafts[0].event_id == UUID(str(event_id))
        ledger.append(run, caught.value.drafts, NEW)
        assert ledger.append(run, [Draft(_message(KEY), uuid4())], ANY)


def test_the_password_of_a_url_that_is_none_is_not_quoted() -> None:
    """A misspelt scheme is a usual mistake, and its error lands in a log."""
    with pytest.raises(InvalidUrlError) as caught:
        Ledger.open("postgress://app:hunter2hunter2@db/shop")
    assert "hunter2" not in str(caught.value)
    assert "postgress" in str(caught.value)


def test_logs_tell_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong quotes what it was given, in its message and in its traceback."""
    logger = logger_of("turnledger.test")
    with caplog.at_level(logging.INFO, "turnledger.test"):
        logger.info("asked with %s", KEY)
        try:
            raise ValueError(f"refused: {TOKEN}")
        except ValueError:
            logger.exception("it failed")
        logger.info("%s of %s", 1, 2)
    assert KEY not in caplog.text
    assert TOKEN not in caplog.text
    assert "[redacted: github-token]" in caplog.text
    assert "Traceback" in caplog.text
    assert caplog.records[-1].args == (1, 2)


def test_logs_keep_to_ones_own_rules_too(caplog: pytest.LogCaptureFixture) -> None:
    """What a ledger must not keep, its log must not keep either."""
    redactor = Redactor(patterns=[SecretPattern("acme", "ACME-[0-9]{6}")])
    with caplog.at_level(logging.INFO, "turnledger.test"):
        logger_of("turnledger.test").info("refused: %s", "ACME-123456")
    assert "ACME-123456" not in caplog.text
    assert redactor.text("ACME-123456") in caplog.text


# --- state that is read back -----------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ({"user": {"keys": ["", f"it is {TOKEN}"]}}, ["user.keys[1]"]),
        ({"a": json.dumps({"b": TOKEN}), "c": 1, "d": [{"e": TOKEN}]}, ["a", "d[0].e"]),
        ({TOKEN: {"x": 1}}, ["[redacted: github-token]"]),
        ({"headers": [["X-Api-Key", "q8Zt3Lw0Vb6Nx1Rc7Yd2"]]}, ["headers[0][1]"]),
    ],
    ids=["text", "json-in-text", "key", "named"],
)
def test_state_that_would_be_redacted_is_refused(data: Any, paths: list[str]) -> None:
    """Its reader would get another state back; the error names the place and not the secret."""
    with Ledger.open("memory://") as ledger:
        event = CustomEvent(kind="acme.state", data=data)
        with pytest.raises(RedactedStateError) as caught:
            ledger.prepare(event, exact=("data",))
        assert list(caught.value.paths) == [f"CustomEvent.data.{path}" for path in paths]
        assert "[redacted: " in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert ledger.prepare(event).event == ledger.redact(event) != event


def test_state_is_recorded_redacted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """By the setting. The log says once for an append what had which format, and no secret."""
    redactor = Redactor(on_redacted="warn")
    with Ledger.open("memory://", redactor=redactor) as ledger:
        run = new_run_id()
        states = [CustomEvent(kind="acme.state", data={"keys": [TOKEN, n, TOKEN]}) for n in (1, 2)]
        entries = [ledger.prepare(state, exact=("data",)) for state in states]
        note = CustomEvent(kind="acme.note", data={"said": TOKEN})
        appended = ledger.append(run, [*entries, ledger.prepare(note)], NEW)
        made = ledger.record(run, 1).event
        assert made.data["keys"] == ["[redacted: github-token]", 1, "[redacted: github-token]"]  # type: ignore[union-attr]
        assert sorted(appended.redacted) == [1, 2, 3]
    [warning] = [one for one in caplog.records if one.name == "turnledger.redaction"]
    said = warning.getMessage()
    assert warning.levelname == "WARNING"
    assert said.count("CustomEvent.data.keys[0] (github-token)") == 2
    assert str(run) in said
    assert "said" not in said  # it is not read back as state
    assert TOKEN not in said


def test_state_that_its_reader_can_not_take_redacted_is_refused() -> None:
    """By either setting: it could never be read again, and a ledger is append-only."""
    redactor = Redactor(fields=["step"], on_redacted="warn")
    state = CustomEvent(kind="acme.state", data={"step": 3})
    with Ledger.open("memory://", redactor=redactor) as ledger:
        with pytest.raises(RedactedStateError, match=r'"warn" does not apply.*invalid literal'):
            ledger.prepare(state, exact=("data",), takes=lambda made: int(made.data["step"]))
        assert ledger.prepare(state, exact=("data",), takes=repr).redacted_state


def test_only_the_named_fields_must_be_exact() -> None:
    """A secret elsewhere in the event is replaced, as ever; state without one is as given."""
    done = ToolCallCompleted(evaluation_id="", call_id="a#1", name=TOKEN, value={"n": [1, "x"]})
    with Ledger.open("memory://") as ledger:
        entry = ledger.prepare(Draft(done, UUID(int=7)), exact=("value",))
        assert entry.event_id == str(UUID(int=7))
        assert entry.event.name == "[redacted: github-token]"  # type: ignore[union-attr]
        run = new_run_id()
        ledger.append(run, entry, NEW)
        assert ledger.record(run, 1).event.value == {"n": [1, "x"]}  # type: ignore[union-attr]
        marked = CustomEvent(kind="acme.state", data="[redacted: github-token]")
        assert ledger.prepare(marked, exact=["data"]).event == marked


def test_with_no_redactor_every_state_is_exact() -> None:
    """What was asked for by redactor=None, and so is a redactor without that format."""
    state = CustomEvent(kind="acme.state", data=TOKEN)
    for redactor in (None, Redactor(formats=["aws-access-key-id"])):
        with Ledger.open("memory://", redactor=redactor) as ledger:
            assert ledger.prepare(state, exact=("data",)).event == state


@pytest.mark.parametrize("exact", ["data", ("dat",), ("data", "x"), (1,)])
def test_exact_names_fields(exact: Any) -> None:
    """A misspelt name would check nothing."""
    with Ledger.open("memory://") as ledger, pytest.raises(InvalidInputError, match="kind, data"):
        ledger.prepare(CustomEvent(kind="a.b"), exact=exact)
