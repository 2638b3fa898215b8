"""Carrying runs from one ledger to another, with their ids, times and digests."""

from turnledger.ledger.transfer.export import export_runs
from turnledger.ledger.transfer.file_format import Totals
from turnledger.ledger.transfer.import_ import ImportReport, import_runs

__all__ = ["ImportReport", "Totals", "export_runs", "import_runs"]
