"""What a person meant who wrote an option that a command does not have: by its sense, where letters do not tell."""

from __future__ import annotations

from typing import Any

_SENSE = {
    "--retain-max": ("keep", "keep-last", "retain", "max", "last", "snapshots", "num-retained", "retain-last"),
    "--older-than": ("age", "before", "older", "days", "since", "ttl", "older-than-days"),
    "--where": ("condition", "filter", "predicate", "cond", "partition"),
    "--yes": ("force", "no-confirm", "confirm", "do-it", "execute", "run"),
    "--dry-run": ("plan", "check", "no-op", "noop", "preview", "simulate"),
    "--limit": ("max", "max-rows", "rows", "count", "top", "head", "last"),
    "--columns": ("select", "cols", "fields"),
    "--keep": ("ttl", "retain", "expire", "retained", "time-retained", "older-than"),
    "--overwrite": ("replace", "force", "mode"),
    "--create": ("new", "make", "create-table"),
    "--primary-key": ("key", "pk", "keys"),
    "--partition-by": ("partition", "partitions", "partitioned-by"),
    "--table-option": ("property", "properties", "tblproperties", "set", "with"),
    "--null": ("null-value", "na", "nulls"),
    "--no-header": ("headerless", "header", "skip-header"),
    "--delimiter": ("sep", "separator", "delim", "field-separator"),
    "--format": ("type", "output-format", "fmt"),
    "--file": ("script", "input", "query-file"),
    "--quick": ("fast", "metadata", "shallow", "light"),
    "--repair": ("fix", "mend"),
    "--full": ("all", "everything", "major"),
    "--queries": ("workload", "queries-file"),
    "--query": ("sql", "statement"),
    "--sql": ("query", "statement"),
    "--timestamp": ("as-of", "time", "at", "when", "version-as-of"),
    "--snapshot": ("version", "id", "at-snapshot"),
    "--json": ("output", "machine"),
    "--lake": ("warehouse", "path", "root", "folder", "dir"),
    "--database": ("db", "schema", "namespace"),
    "--option": ("conf", "config", "storage-option"),
}
"""Words, without dashes, by the option that has their sense."""


def meant(message: str, error: Any) -> str:
    """The message of a wrong command line, with the option that was meant where that can be told."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    has = {o for p in getattr(command, "params", ()) for o in getattr(p, "opts", ())}
    given = getattr(error, "option_name", None)
    if given is not None:
        word = str(given).lstrip("-").lower()
        found = [option for option, words in _SENSE.items() if word in words and option in has]
        return f"No such option: {given}. Did you mean {' or '.join(found)}?" if found else message
    if message.startswith("Got unexpected extra argument") and "--where" in has:
        return f"{message.rstrip('.')}; a condition goes with --where '…'"
    return message
