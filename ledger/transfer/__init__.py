"""Carrying runs from one ledger to another, with their ids, times and digests."""

from turnledger.ledger.transfer.exporting import export_runs
from turnledger.ledger.transfer.importing import ImportReport, import_runs
from turnledger.ledger.transfer.lines import Totals, moment_text

__all__ = ["ImportReport", "Totals", "export_runs", "import_runs", "moment_text"]
