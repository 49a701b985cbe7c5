"""Verify a table (fsck): all files that snapshots, tags and branches need exist and match their metadata."""

from bitlake.tools.verify.findings import CODES, Code, Finding, Severity, VerifyReport
from bitlake.tools.verify.run import verify_table

__all__ = ["CODES", "Code", "Finding", "Severity", "VerifyReport", "verify_table"]
