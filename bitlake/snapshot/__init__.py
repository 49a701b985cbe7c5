"""Snapshots and what they refer to: manifests, tags, branches, time travel, expiry, orphan files."""
