"""Integrations are extras: without its framework, one says what to install."""

from __future__ import annotations

from importlib import import_module

import pytest

from turnledger.ledger import MissingDependencyError

EXTRAS = {
    "adk": "adk",
    "claude": "claude",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai",
}


@pytest.mark.parametrize("module", EXTRAS)
def test_missing_framework_says_what_to_install(module: str) -> None:
    """Importing an integration without its framework names the extra to install."""
    with pytest.raises(MissingDependencyError) as raised:
        import_module(f"turnledger.{module}")
    assert f"pip install 'turnledger[{EXTRAS[module]}]'" in str(raised.value)
