"""Conversations that people have already, in and out: the providers' own formats.

Readers turn a provider's JSON into a conversation in no provider's words; the way back goes
through the wire formats of `adapters.providers`.
"""

from turnledger.adapters.transcripts.exporting import (
    EvaluationNotFoundError,
    NotExportedError,
    NothingSaidError,
    Wanted,
    export_transcript,
)
from turnledger.adapters.transcripts.formats import FORMATS, reader_of
from turnledger.adapters.transcripts.importing import (
    ImportedRun,
    import_transcripts,
    read_transcripts,
)
from turnledger.adapters.transcripts.planning import Plan, plan_of
from turnledger.adapters.transcripts.transcript import Note, Transcript, TranscriptError

__all__ = [
    "FORMATS",
    "EvaluationNotFoundError",
    "ImportedRun",
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
