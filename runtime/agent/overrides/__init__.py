"""Prompt overrides: texts that replace those of sections and tools, with their history."""

from turnledger.runtime.agent.overrides.filesystem import (
    FilesystemOverridesStore,
    OverridesFileError,
)
from turnledger.runtime.agent.overrides.ledger_store import LedgerOverridesStore
from turnledger.runtime.agent.prompts.override_texts import OverrideTexts, PromptOverridesStore

__all__ = [
    "FilesystemOverridesStore",
    "LedgerOverridesStore",
    "OverrideTexts",
    "OverridesFileError",
    "PromptOverridesStore",
]
