"""Transcripts: import and export of conversations in the providers' own JSON formats.

Readers turn a provider's JSON into a provider-neutral `Transcript`; export goes through the wire
formats of `adapters.providers`.
"""

from turnledger.adapters.providers.registry import FORMATS
from turnledger.adapters.transcripts.export import (
    EvaluationNotFoundError,
    NotExportedError,
    NothingSaidError,
    Wanted,
    export_transcript,
)
from turnledger.adapters.transcripts.import_ import (
    ImportedRun,
    import_transcripts,
    read_transcripts,
)
from turnledger.adapters.transcripts.messages import MessageWriter
from turnledger.adapters.transcripts.plan import Plan, plan_of
from turnledger.adapters.transcripts.readers.registry import reader_of
from turnledger.adapters.transcripts.transcript import Note, Transcript, TranscriptError

__all__ = [
    "EvaluationNotFoundError",
    "FORMATS",
    "ImportedRun",
    "MessageWriter",
    "NotExportedError",
    "Note",
    "NothingSaidError",
    "Plan",
    "Transcript",
    "TranscriptError",
    "Wanted",
    "export_transcript",
    "import_transcripts",
    "plan_of",
    "read_transcripts",
    "reader_of",
]
