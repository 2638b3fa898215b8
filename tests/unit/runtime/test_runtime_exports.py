"""What can be imported from `runtime`: everything that is listed, sorted, and nothing else."""

from __future__ import annotations

import inspect

from turnledger import runtime

NAMED = {
    "MarkdownSection",
    "Prompt",
    "PromptEvaluationError",
    "PromptTemplate",
    "SectionVisibility",
    "SetVisibilityOverride",
    "Tool",
    "ToolContext",
    "ToolResult",
    "VisibilityExpansionRequired",
    "VisibilityOverrides",
}


def test_the_runtimes_names_are_sorted_and_there() -> None:
    """Plainly, by code point, each once."""
    assert list(runtime.__all__) == sorted(set(runtime.__all__))
    for name in runtime.__all__:
        assert hasattr(runtime, name), name


def test_nothing_public_of_the_runtime_is_unlisted() -> None:
    """But for the modules of the package; some names are imported when they are asked for."""
    public = {
        name
        for name, value in vars(runtime).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(runtime.__all__) - set(runtime._LATER)
    assert set(runtime._LATER) < set(runtime.__all__)


def test_the_runtime_has_the_names_of_the_design() -> None:
    """Those of prompts and tools."""
    assert set(runtime.__all__) >= NAMED


def test_every_public_class_and_function_of_the_runtime_says_what_it_is_for() -> None:
    """In a docstring of its own."""
    for name in runtime.__all__:
        value = getattr(runtime, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name
