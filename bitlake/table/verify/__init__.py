"""Verifying a table (fsck): each file that snapshots, tags and branches need is there, sound, and as others say."""

from bitlake.table.verify.codes import CODES, Code, Severity
from bitlake.table.verify.findings import Finding, VerifyReport
from bitlake.table.verify.run import verify_table

__all__ = ["CODES", "Code", "Finding", "Severity", "VerifyReport", "verify_table"]
