"""Verifying a table (fsck): each file that snapshots, tags and branches need is there, sound, and as others say."""

from bitlake.tools.verify.findings import CODES, Code, Finding, Severity, VerifyReport
from bitlake.tools.verify.run import verify_table

__all__ = ["CODES", "Code", "Finding", "Severity", "VerifyReport", "verify_table"]
