"""Prompt overrides: texts that replace those of sections and tools, with their history."""

from turnledger.runtime.agent.prompts.override_texts import OverrideTexts, PromptOverridesStore
from turnledger.runtime.overrides.filesystem import FilesystemOverridesStore, OverridesFileError
from turnledger.runtime.overrides.ledger_store import LedgerOverridesStore

__all__ = [
    "FilesystemOverridesStore",
    "LedgerOverridesStore",
    "OverrideTexts",
    "OverridesFileError",
    "PromptOverridesStore",
]
