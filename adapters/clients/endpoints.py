"""Endpoints: which requests of an SDK are model calls, and what an SDK varies by itself.

Every request inside a run is recorded. One of these is a model call; all others (files, batches,
lists of models) are plain steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Endpoint:
    """A generating endpoint.

    Attributes:
        name: The kind of request, as it is recorded: "openai.chat.completions".
        format: The wire format of its conversation; empty if it has none (embeddings).
    """

    name: str
    format: str = ""


# By the end of the path: hosts, versions and deployments come before it.
_MODEL_CALLS: Mapping[str, tuple[tuple[str, Endpoint], ...]] = {
    "openai": (
        (r"/chat/completions", Endpoint("openai.chat.completions", "openai-chat")),
        (r"/responses", Endpoint("openai.responses", "openai-responses")),
        (r"/completions", Endpoint("openai.completions")),
        (r"/embeddings", Endpoint("openai.embeddings")),
        (r"/moderations", Endpoint("openai.moderations")),
        (r"/images/(?:generations|edits|variations)", Endpoint("openai.images")),
        (r"/audio/(?:speech|transcriptions|translations)", Endpoint("openai.audio")),
    ),
    "anthropic": (
        (r"/messages", Endpoint("anthropic.messages", "anthropic")),
        (r"/complete", Endpoint("anthropic.complete")),
    ),
    "google-genai": (
        (r":(?:g|streamG)enerateContent", Endpoint("google.generate_content", "gemini")),
        (r":(?:embedContent|batchEmbedContents)", Endpoint("google.embed_content")),
        (r":predict", Endpoint("google.predict")),
    ),
}

# Fields of a request's body that an SDK makes up anew for each request: no part of the digest.
VARIES_BY_ITSELF: Mapping[str, frozenset[str]] = {
    # Session events of tool runners.
    "openai": frozenset({"idempotency_key"}),
    # The poller of environments.
    "anthropic": frozenset({"anthropic_worker_id"}),
    # Batch jobs: a name with the time, which is also the folder of the output.
    "google-genai": frozenset({"displayName", "outputConfig"}),
}


def model_call(sdk: str, method: str, path: str) -> Endpoint | None:
    """The generating endpoint that a request goes to; None if it is not a model call."""
    if method != "POST":
        return None
    for end, endpoint in _MODEL_CALLS[sdk]:
        if re.search(f"{end}/?$", path):
            return endpoint
    return None
