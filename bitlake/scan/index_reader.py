"""Opening a data file's index, wherever it is kept; what a predicate does not need is not read."""

from __future__ import annotations

from dataclasses import dataclass

from bitlake.fileindex.reader import FileIndexReader, open_index
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata.manifest import DataFileMeta
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import Cache
from bitlake.scan.index_location import index_name

_open: Cache[tuple[str, str], FileIndexReader] = Cache(256 * 1024 * 1024)
_START = 32 * 1024
"""Bytes of an index file fetched with its size: its header, and many a small index as a whole.  To a disk that is
nothing; of a bucket it saves a request for the size, one for the header's length and one for the header."""
_OPENED = 8 * 1024
"""Bytes that an open index takes beside its own, about: of 100,000 small ones that is far more than these."""
_answers: Cache[tuple[str, str, str], IndexAnswer] = Cache(128 * 1024 * 1024)
_ANSWER = 512


@dataclass(frozen=True, slots=True)
class IndexAnswer:
    """What a file's index said of a predicate, which indexes it has of its columns, and which were not worth it."""

    selection: Selection
    used: tuple[str, ...]
    spared: tuple[str, ...] = ()


def open_for(store: Store, data_path: str, file: DataFileMeta, schema: TableSchema) -> FileIndexReader | None:
    """Open the index of a data file written with ``schema``; None if it has none.

    What was opened and read stays cached, because neither a data file nor its index ever changes; one that had problems
    is opened anew, so that a storage failure passes and a lasting problem shows up in every plan that it concerns.
    Raises :class:`bitlake.errors.BitlakeError` for an index file that is not there or cannot be asked for its size.
    """
    if file.embedded_index is not None:
        content = file.embedded_index
        # Small ones are quicker to parse again than the garbage collector is to look through all of them.
        small = len(content) < _OPENED
        key = (data_path, _place(file))
        found = None if small else _open.get(key)
        if found is None or found.problems:
            found = open_index(
                lambda offset, length: content[offset : offset + length], len(content), schema.fields, file.row_count
            )
            if not small:
                _open.put(key, found, len(content) + _OPENED)
        return found
    name = index_name(file)
    if name is None:
        return None
    path = f"{data_path.rsplit('/', 1)[0]}/{name}"
    key = (path, "")
    found = _open.get(key)
    if found is None or found.problems:
        start, length = store.read_start(path, _START)

        def fetch(offset: int, size: int) -> bytes:
            inside = offset >= 0 and offset + size <= len(start)
            return start[offset : offset + size] if inside else store.read_range(path, offset, size)

        found = open_index(fetch, length, schema.fields, file.row_count)
        _open.put(key, found, length + _OPENED)
    return found


def _place(file: DataFileMeta) -> str:
    """Which index of a data file: rewriting it leaves the data file's name as it is."""
    content = file.embedded_index
    return index_name(file) or "" if content is None else f"embedded:{len(content)}:{hash(content)}"


def known_answer(data_path: str, file: DataFileMeta, question: str) -> IndexAnswer | None:
    """What :func:`keep_answer` was told; ``question`` tells predicates on the file's columns apart."""
    return _answers.get((data_path, _place(file), question))


def keep_answer(data_path: str, file: DataFileMeta, question: str, answer: IndexAnswer) -> None:
    """Remember an answer that had no problems: the next plan with the same question does not open the index."""
    rows = answer.selection.rows
    size = 0 if rows is None else min(8 * len(rows), file.row_count // 8 + 64)
    _answers.put((data_path, _place(file), question), answer, _ANSWER + size)


def forget_all() -> None:
    """Drop every cached index and answer (tests that break files on purpose need it)."""
    _open.clear()
    _answers.clear()
