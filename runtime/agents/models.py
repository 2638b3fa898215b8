"""Makes the adapter of an agent's `model`: an adapter, "provider:name", or a script.

Providers are found by entry points (group `turnledger.providers`), so that this package imports
none of them, and others can be added by installing a package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from turnledger.ledger.errors import InvalidInputError, error_text, short_repr
from turnledger.runtime.agent.models.request import Reply, Request
from turnledger.runtime.loop.adapter import ProviderAdapter
from turnledger.runtime.loop.scripted import ScriptedAdapter

GROUP = "turnledger.providers"
Model: TypeAlias = (
    ProviderAdapter[Any] | str | Callable[[Request], Reply] | Sequence[Reply | Exception]
)


def check_model(model: Any) -> None:
    """InvalidInputError if no adapter can be made of it; imports and connects to nothing."""
    if isinstance(model, str):
        provider, colon, name = model.partition(":")
        if provider and colon and name:
            return
    elif isinstance(model, ProviderAdapter) or callable(model):
        return
    elif isinstance(model, list | tuple):
        wrong = next((one for one in model if not isinstance(one, Reply | Exception)), None)
        if wrong is None:
            return
        raise InvalidInputError(
            f"Invalid reply {short_repr(wrong)} in the agent's model: expected a Reply, or an "
            "exception that the call fails with."
        )
    raise InvalidInputError(
        f"Invalid model {short_repr(model)}: expected 'provider:name' ('openai:gpt-5'), an "
        "adapter (OpenAIAdapter(model='gpt-5')), or for tests a list of replies or a function."
    )


def adapter_of(model: Model) -> ProviderAdapter[Any]:
    """The adapter of a model that `check_model` let pass."""
    if isinstance(model, ProviderAdapter):
        return model
    if not isinstance(model, str):
        return ScriptedAdapter(model)
    provider, _, name = model.partition(":")
    made = _provider(provider, model)(model=name)
    if not isinstance(made, ProviderAdapter):
        raise InvalidInputError(
            f"The provider {provider!r} made a {type(made).__name__}, expected a ProviderAdapter."
        )
    return made


def _provider(provider: str, model: str) -> Callable[..., Any]:
    from importlib.metadata import entry_points  # slow to import

    known = {one.name: one for one in entry_points(group=GROUP)}
    if provider not in known:
        raise InvalidInputError(
            f"Unknown provider {provider!r} in model {model!r}: expected one of "
            f"{', '.join(sorted(known)) or 'none (is turnledger installed?)'}."
        )
    try:
        found: Callable[..., Any] = known[provider].load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"The provider {provider!r} ({known[provider].value}) can't be imported: "
            f"{error_text(error)}"
        ) from error
    return found
