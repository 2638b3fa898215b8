"""FilesystemOverridesStore: one JSON file a prompt and tag, that people edit and keep in git."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says
from turnledger.ledger import InvalidInputError, Ledger, new_run_id
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    PromptDefinitionError,
    PromptEvaluationError,
    PromptTemplate,
    Reply,
    Request,
    ScriptedAdapter,
    Session,
    Tool,
    replay,
)
from turnledger.runtime.agent.overrides import FilesystemOverridesStore, OverridesFileError
from turnledger.runtime.agent.prompts.override_texts import text_digest

NS, KEY = "acme/support", "answer"
FILE = f"{NS}/{KEY}/latest.json"


def look(*, context: object) -> str:
    return "seen"


def template(tone: str = "Be polite.") -> PromptTemplate[str]:
    tool = Tool[None, str](name="look", description="Looks.", handler=look)
    section = MarkdownSection(title="Tone", key="tone", template=tone, tools=[tool])
    return PromptTemplate[str](ns=NS, key=KEY, sections=[section])


PROMPT = template()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


@pytest.fixture
def store(root: Path) -> FilesystemOverridesStore:
    return FilesystemOverridesStore(root)


def put(root: Path, content: str | bytes, file: str = FILE) -> Path:
    """Write a file by hand."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_overrides_are_a_file_for_each_tag(root: Path, store: FilesystemOverridesStore) -> None:
    """With sorted keys, so that git shows what changed; a text of a tag is that tag's alone."""
    store.set_section_override(Prompt(PROMPT), path="tool:look", body="Looks twice.")
    store.set_section_override(PROMPT, path="tone", body="Be brief, ü.")
    store.set_section_override(PROMPT, tag="beta", path="tone", body="Joke.")
    assert files(root) == [f"{NS}/{KEY}/beta.json", FILE]
    content = (root / FILE).read_text()
    assert content.endswith("}\n")
    assert "Be brief, ü." in content
    assert list(json.loads(content).items()) == [
        ("tone", {"body": "Be brief, ü.", "replaces": text_digest("Be polite.")}),
        ("tool:look", {"body": "Looks twice.", "replaces": text_digest("Looks.")}),
    ]
    rendered = Prompt(PROMPT).render(overrides_store=store)
    assert "Be brief, ü." in rendered.text
    assert [tool.description for tool in rendered.tools] == ["Looks twice."]
    assert rendered.overrides is not None
    assert (rendered.overrides.store, rendered.overrides.version) == ("filesystem", None)
    assert "Joke." in Prompt(PROMPT).render(overrides_store=store, overrides_tag="beta").text


def test_a_file_that_a_person_wrote_needs_no_digest(
    root: Path, store: FilesystemOverridesStore
) -> None:
    """Without one it replaces any text; with one, only the text that it names."""
    put(root, '{"tone": {"body": "Hm."}}')
    assert "Hm." in Prompt(template("Be odd.")).render(overrides_store=store).text
    put(root, '{"tone": {"body": "Hm.", "replaces": "another"}}')
    rendered = Prompt(PROMPT).render(overrides_store=store)
    assert "Be polite." in rendered.text
    assert rendered.stale_overrides == ("tone",)


def test_there_may_be_no_file(store: FilesystemOverridesStore) -> None:
    """Then the authored texts count, and reading makes no folder."""
    assert store.section_overrides(NS, KEY) is None
    assert "Be polite." in Prompt(PROMPT).render(overrides_store=store).text
    assert not store.root.exists()


def test_seeding_writes_the_authored_texts_and_keeps_what_was_edited(
    root: Path, store: FilesystemOverridesStore
) -> None:
    """Seeding again changes nothing, not even the file."""
    store.set_section_override(PROMPT, path="tone", body="Be brief.")
    store.seed(PROMPT)
    assert dict(store.section_overrides(NS, KEY) or {}) == {
        "tone": "Be brief.",
        "tool:look": "Looks.",
    }
    before = (root / FILE).stat()
    store.seed(PROMPT)
    assert (root / FILE).stat() == before


def test_deleting_brings_the_authored_text_back(
    root: Path, store: FilesystemOverridesStore
) -> None:
    """Of one path or of all; a file without overrides is removed, and may be missing."""
    store.seed(PROMPT)
    store.delete(PROMPT, path="tone")
    assert list(store.section_overrides(NS, KEY) or {}) == ["tool:look"]
    store.delete(PROMPT)
    store.delete(PROMPT)
    assert files(root) == []


def test_texts_that_are_set_at_once_are_all_there(store: FilesystemOverridesStore) -> None:
    """And no unfinished file is left."""
    sections = [MarkdownSection(title="T", key=f"s{n}", template="x") for n in range(8)]
    many: PromptTemplate[str] = PromptTemplate(ns=NS, key=KEY, sections=sections)
    threads = [
        Thread(
            target=store.set_section_override, args=(many,), kwargs={"path": f"s{n}", "body": "y"}
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.section_overrides(NS, KEY) or {}) == 8
    assert files(store.root) == [FILE]


def test_a_file_is_replaced_as_a_whole(root: Path, store: FilesystemOverridesStore) -> None:
    """A reader that has opened it before the change reads the old content to its end."""
    store.set_section_override(PROMPT, path="tone", body="Be brief.")
    with (root / FILE).open() as before:
        store.set_section_override(PROMPT, path="tone", body="Be long.")
        assert json.load(before)["tone"]["body"] == "Be brief."


def test_a_file_that_can_not_be_written_stays_as_it_was(
    root: Path, store: FilesystemOverridesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the disk says in between."""
    store.set_section_override(PROMPT, path="tone", body="Be brief.")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OverridesFileError, match=r"latest\.json.*No space left"):
        store.set_section_override(PROMPT, path="tone", body="Be long.")
    assert dict(store.section_overrides(NS, KEY) or {}) == {"tone": "Be brief."}
    assert files(root) == [FILE]


class Reviewer(ScriptedLoop[None, str]):
    """Calls its tool, and dies in it if it is to; keeps what was sent to the model."""

    dies, sent = False, ""

    def __init__(self, ledger: Ledger, store: FilesystemOverridesStore) -> None:
        super().__init__(self._reply, ledger=ledger, overrides_store=store, request_type=None)

    def _reply(self, request: Request) -> Reply:
        self.sent += request.system
        return says("Done.") if request.turn > 1 else calls(("c1", "look", "{}"))

    def _look(self, *, context: object) -> str:
        if self.dies:
            raise Crash
        return "seen"

    def create_prompt(self, request: None) -> Prompt[str]:
        tool = Tool[None, str](name="look", description="Looks.", handler=self._look)
        section = MarkdownSection(title="Tone", key="tone", template="Be polite.", tools=[tool])
        return Prompt(PromptTemplate[str](ns=NS, key=KEY, sections=[section]))


@pytest.mark.parametrize("after", ['{"tone": {"body": "Be rude."}}', "<<<<<<< HEAD\n", None])
def test_a_run_goes_on_with_the_text_that_it_was_begun_with(
    ledger: Ledger, root: Path, store: FilesystemOverridesStore, after: str | None
) -> None:
    """Whatever became of the file in the meantime: edited, damaged or removed; replayed too."""
    store.set_section_override(PROMPT, path="tone", body="Be brief.")
    run_id, dying = new_run_id(), Reviewer(ledger, store)
    dying.dies = True
    with pytest.raises(Crash):
        dying.execute(None, run_id=run_id)
    if after is None:
        (root / FILE).unlink()
    else:
        put(root, after)
    loop = Reviewer(ledger, store)
    loop.recover(run_id)
    assert "Be brief." in loop.sent
    assert replay(ledger, run_id, loop=Reviewer(ledger, store)).divergence is None


# --- hostile names and damaged files ------------------------------------------------------

NAMES = ["..", ".", "", "a/../..", "/etc", "a//b", "a\\b", "a\0b", ".git", "x" * 300, "é", "a\nb"]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_refused(store: FilesystemOverridesStore, name: str) -> None:
    """Of a namespace, a key or a tag; nothing outside of the root is read or written."""
    for given in ((name, KEY, "latest"), (NS, name, "latest"), (NS, KEY, name)):
        with pytest.raises((PromptDefinitionError, InvalidInputError), match="Invalid"):
            store.section_overrides(*given)
    with pytest.raises(InvalidInputError, match="Invalid tag"):
        store.seed(PROMPT, tag=name)
    assert not store.root.exists()


def test_a_link_out_of_the_root_is_refused(
    root: Path, store: FilesystemOverridesStore, tmp_path: Path
) -> None:
    """Of a file and of a folder; a link within it is followed, so that a tag can be one."""
    outside = put(tmp_path, '{"tone": {"body": "Out."}}', "outside.json")
    store.set_section_override(PROMPT, tag="v1", path="tone", body="Be brief.")
    (root / NS / KEY / "stable.json").symlink_to("v1.json")
    assert dict(store.section_overrides(NS, KEY, "stable") or {}) == {"tone": "Be brief."}
    (root / NS / KEY / "out.json").symlink_to(outside)
    (root / "away").symlink_to(tmp_path)
    with pytest.raises(OverridesFileError, match="leads out of"):
        store.section_overrides(NS, KEY, "out")
    away: PromptTemplate[str] = PromptTemplate(ns="away", key=KEY, sections=PROMPT.sections)
    with pytest.raises(OverridesFileError, match="leads out of"):
        store.seed(away)
    assert not (tmp_path / KEY).exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"tone": "text"}',
        b'{"tone": {"body": 1}}',
        b'{"tone": {"replaces": "x"}}',
        b'{"tone": {"body": "x", "colour": 1}}',
        b'{"tone": {"body": "\xff"}}',
        b"<<<<<<< HEAD\n",
    ],
)
def test_a_damaged_file_is_named(
    root: Path, store: FilesystemOverridesStore, content: bytes
) -> None:
    """By reading, by changing, and by an evaluation, in the phase request; it stays as it was."""
    path = put(root, content)
    for use in (
        lambda: store.section_overrides(NS, KEY),
        lambda: store.seed(PROMPT),
        lambda: store.delete(PROMPT),
    ):
        with pytest.raises(OverridesFileError, match=r"acme/support/answer/latest\.json") as caught:
            use()
        assert caught.value.path == path
    adapter: ScriptedAdapter[Any] = ScriptedAdapter([says("Never.")])
    with pytest.raises(PromptEvaluationError, match=r"latest\.json") as failed:
        adapter.evaluate(Prompt(PROMPT), session=Session(), overrides_store=store)
    assert failed.value.phase == "request"
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["pipe", "folder", "large"])
def test_what_is_not_a_small_file_is_refused(
    root: Path, store: FilesystemOverridesStore, kind: str
) -> None:
    """At once: a pipe without a writer is not waited for."""
    path = root / FILE
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(17 * 1024 * 1024)
    with pytest.raises(OverridesFileError, match=r"latest\.json"):
        store.section_overrides(NS, KEY)
