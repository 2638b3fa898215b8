"""The public names of `turnledger.runtime`: few enough, and those that the design names."""

from __future__ import annotations

from turnledger import runtime

# DESIGN.md, "Where the public names live"; the errors are checked in test_runtime_errors.
NAMED = """
AdapterResumeState Budget BudgetTracker Checkpoint CheckpointBackend CheckpointPhase
CheckpointSaved CompositeSnapshot ControlBus Deadline Divergence EventBus ExecutionState
FilesystemCheckpointBackend InProcessEventBus LedgerCheckpointBackend MainLoop MainLoopCompleted
MainLoopConfig MainLoopFailed MainLoopRequest MarkdownSection MediaPart Message MessageBuilder
OptionCallPayload OptionResultBuilder OptionResultPayload Prompt PromptExecuted
PromptOverridesStore PromptRendered PromptResponse PromptTemplate ProviderAdapter RecoverableRun
RecoveryCompleted RecoveryConfig RecoveryFailed RecoveryStarted Reply ScriptedAdapter
SectionVisibility Session SetVisibilityOverride Snapshot SnapshotableFilesystem TextPart
TextReceived ThrottlePolicy Tool ToolCall ToolContext ToolInvoked ToolResult
VisibilityExpansionRequired VisibilityOverrides enable_inner_message_recording replay tool_to_spec
"""


def test_the_runtime_has_at_most_100_names() -> None:
    """What only experts need is in the sub-packages."""
    assert len(runtime.__all__) <= 100


def test_the_runtime_has_the_names_of_the_design() -> None:
    """Whatever else moves to a sub-package."""
    assert set(runtime.__all__) >= set(NAMED.split())
