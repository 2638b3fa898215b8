"""Every target by its name."""

from __future__ import annotations

from tests.fuzz.cli_targets import CommandLine
from tests.fuzz.codec_targets import Decoding, Encoding
from tests.fuzz.export_targets import Importing, Replaying
from tests.fuzz.given_targets import GivenEvents, Seals
from tests.fuzz.redactor_targets import RedactorFiles
from tests.fuzz.targets import Target
from tests.fuzz.transcript_targets import Transcripts

TARGETS: dict[str, type[Target]] = {
    kind.name: kind
    for kind in (
        Decoding,
        Encoding,
        Importing,
        Replaying,
        GivenEvents,
        Seals,
        Transcripts,
        CommandLine,
        RedactorFiles,
    )
}
