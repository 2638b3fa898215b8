"""The generated reference pages say what the code says."""

from __future__ import annotations

from typing import get_args

import pytest

from docs import generate
from turnledger.adapters.cli import turnledger
from turnledger.adapters.cli.shared.command import COMMON
from turnledger.ledger.errors import TurnledgerError
from turnledger.ledger.events.types import Event


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_page_is_current(name: str) -> None:
    """Each page in the repository is what `python -m docs.generate` would write."""
    assert (generate.FOLDER / name).read_text() == generate.PAGES[name]()
    assert name not in generate.stale_pages()


def test_every_command_is_on_its_page() -> None:
    """No command, option or argument is missing from the reference; common options are at its
    beginning, and only there."""
    page = (generate.FOLDER / "reference/commands.md").read_text()
    beginning = page.partition("\n## ")[0]
    for name, command in turnledger.load_all().items():
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
        assert f"turnledger {name} " in section
        for param in command.params:
            for spelling in param.opts if param.param_type_name == "option" else ():
                is_common = param.name in COMMON
                assert (f"`{spelling}`" in section) != is_common, f"{name} {spelling}"
                assert not is_common or f"`{spelling}`" in beginning


def test_every_event_is_on_its_page() -> None:
    """No event and no field is missing from the reference, and each has a meaning."""
    page = (generate.FOLDER / "reference/events.md").read_text()
    for kind in get_args(Event):
        section = page.partition(f"\n## {kind.tag}\n")[2].partition("\n## ")[0]
        assert f"`{kind.__name__}`. " in section
        for field in kind.__struct_fields__:
            assert f"| `{field}` |" in section, f"{kind.tag} {field}"


def test_every_error_is_on_its_page() -> None:
    """No error is missing from the reference."""
    page = (generate.FOLDER / "reference/errors.md").read_text()
    kinds, todo = set(), [TurnledgerError]
    while todo:
        kind = todo.pop()
        kinds.add(kind)
        todo.extend(k for k in kind.__subclasses__() if k.__module__ == "turnledger.ledger.errors")
    for kind in kinds:
        assert f"| `{kind.__name__}` |" in page


def test_check_names_a_stale_page(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` fails where a page is missing or old, and a run mends it."""
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["docs.generate", "--check"])
    with pytest.raises(SystemExit, match=r"commands\.md"):
        generate.main()
    monkeypatch.setattr("sys.argv", ["docs.generate"])
    generate.main()
    assert generate.stale_pages() == []
