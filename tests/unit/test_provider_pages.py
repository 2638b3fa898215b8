"""What the pages on providers claim and no snippet shows: tables, limits, and who was asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tests.unit.docs_providers import ADAPTERS, ANSWERS, LOCAL, Providers, are_needed
from tests.unit.test_docs import PAGES, ROOT, Reader, blocks, read
from turnledger.adapters.providers.anthropic.messages import AnthropicMessages
from turnledger.adapters.providers.gemini.contents import GeminiContents
from turnledger.adapters.providers.litellm import LiteLLMChat
from turnledger.adapters.providers.openai.chat import ChatCompletions
from turnledger.adapters.providers.openai.responses import Responses
from turnledger.adapters.providers.wire import Capabilities, Source
from turnledger.ledger.events.messages import Modality

HOW_TO = ROOT / "docs" / "how-to"
FORMATS: dict[str, Capabilities] = {
    "OpenAI chat": ChatCompletions.capabilities,
    "OpenAI Responses": Responses.capabilities,
    "LiteLLM": LiteLLMChat.capabilities,
    "Anthropic": AnthropicMessages.capabilities,
    "Gemini": GeminiContents.capabilities,
}


def _table(cell: Callable[[Capabilities, Modality], str]) -> str:
    """A row for each format, a column for each modality."""
    modalities: tuple[Modality, ...] = get_args(Modality)
    lines = ["| | " + " | ".join(modalities) + " |", "|---" * (1 + len(modalities)) + "|"]
    for name, able in FORMATS.items():
        cells = [cell(able, modality) for modality in modalities]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def media_table() -> str:
    """Which format takes what, and how: from what the adapters declare."""
    words: dict[Source, str] = {"url": "URL", "bytes": "bytes"}

    def cell(able: Capabilities, modality: Modality) -> str:
        return ", ".join(words[one] for one in words if able.takes(modality, one)) or "no"

    return _table(cell)


def types_table() -> str:
    """Of which types bytes may be: the ends of their names."""

    def cell(able: Capabilities, modality: Modality) -> str:
        if not able.takes(modality, "bytes"):
            return "no"
        mimes = able.mimes.get(modality)
        return "any" if mimes is None else ", ".join(mime.rpartition("/")[2] for mime in mimes)

    return _table(cell)


def test_the_tables_of_media_are_what_the_adapters_declare() -> None:
    """Both tables of the page are made from the formats' Capabilities."""
    page = (HOW_TO / "send-media.md").read_text()
    assert media_table() in page
    assert types_table() in page


def test_the_adapter_on_the_page_has_under_60_lines() -> None:
    """All of its code, with imports and blank lines, and none of it elsewhere on the page."""
    page = (HOW_TO / "write-an-adapter.md").read_text()
    (adapter,) = [block for block in blocks(page) if "(tl.ProviderAdapter" in block.text]
    assert len(adapter.text.splitlines()) < 60
    for part in ("def encode", "def send", "def decode"):
        assert page.count(part) == adapter.text.count(part) == 1


@pytest.mark.parametrize("page", sorted(HOW_TO.glob("use-*.md")), ids=lambda page: page.stem)
def test_a_page_on_a_provider_says_what_it_needs_and_what_it_can_not(page: Path) -> None:
    """What to install, and the limits, in at most 120 lines."""
    text = page.read_text()
    assert f"pip install 'turnledger[{page.stem.removeprefix('use-')}]'" in text
    assert "\n## What it can't do\n" in text
    assert 60 <= len(text.splitlines()) <= 120


def test_every_question_of_the_script_is_asked_on_a_page() -> None:
    """The script holds nothing that no page needs."""
    said = "\n".join(page.read_text() for page in PAGES)
    assert [question for question in ANSWERS if question not in said] == []


def test_pages_with_an_adapter_have_their_providers(tmp_path: Path) -> None:
    """Every adapter starts the servers, a page without one does not, and they are asked."""
    assert all(are_needed([f"{adapter}(model='m')"]) for adapter in ADAPTERS)
    assert are_needed(['Agent("a", model="openai:gpt-5")'])
    assert not are_needed(["ScriptedAdapter(replies)"])
    with Providers() as providers, Reader(tmp_path, providers=providers) as reader:
        printed = reader.python(f"import os\nprint(os.environ['OPENAI_BASE_URL'], {LOCAL!r})")
        ours, local = printed.split()
        assert ours == local != LOCAL
        reader.python(
            "from openai import OpenAI\n"
            "asked = [{'role': 'user', 'content': 'Name a river.'}]\n"
            "OpenAI().chat.completions.create(model='m', messages=asked)"
        )
        assert providers.asked == 1
        assert providers.refused == []


def test_a_page_whose_request_is_refused_is_noticed(tmp_path: Path) -> None:
    """Also if the page itself makes nothing of it."""
    page = (
        "```python\n"
        "import turnledger.runtime as tl\nfrom turnledger.adapters import OpenAIAdapter\n"
        "adapter = OpenAIAdapter(model='m', request_options={'temperature': 9})\n"
        "template = tl.PromptTemplate(ns='a', key='b')\n"
        "try:\n    adapter.evaluate(tl.Prompt(template), session=tl.Session())\n"
        "except tl.PromptEvaluationError:\n    pass\n"
        "```\n"
    )
    with pytest.raises(AssertionError, match="temperature"):
        read("refused", page, tmp_path)
