"""Where a file is that was named shortly, and indexes that are inside of a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bitlake.errors import NotFound
from bitlake.inspect.context import TableContext
from bitlake.inspect.source import Source
from bitlake.io import Store
from bitlake.io.base import scheme_of
from bitlake.types import DataField

INDEX = ".index"


def find_file(store: Store, context: TableContext, path: str) -> str:
    """The full path of a file; raises :class:`NotFound` telling where it was looked for.

    A path of an index that is not there stays as it is when its data file has an embedded one.
    """
    path = path.removeprefix("./")
    candidates: list[str] = []
    for candidate in _candidates(context, path):  # the last of them takes looking into manifests
        if candidate in candidates:
            continue
        candidates.append(candidate)
        if store.exists(candidate) and not _is_folder(store, candidate):
            return candidate
    if embedded(context, path) is not None:
        return context.files[_data_name(path)][0] + INDEX
    if _is_folder(store, path):
        raise NotFound(f"{path} is a folder; name one file in it")
    looked = "" if len(candidates) == 1 else f" (looked for as {candidates[0]}"
    if len(candidates) > 1:
        # By its name alone it is looked for everywhere.
        looked += ")" if "/" in path else ", in the table's folders of metadata, and among its live data files)"
    raise NotFound(f"there is no file {path}{looked}")


def _candidates(context: TableContext, path: str) -> Iterator[str]:
    paths = context.paths
    if paths is None or path.startswith(("/", "file:")) or scheme_of(path) != "file":
        yield path
        return
    yield f"{paths.root}/{path}"
    yield f"{paths.branch_root}/{path}"
    if "/" in path:
        yield path
        return
    for folder in (
        paths.snapshot_dir, paths.schema_dir, paths.tag_dir, paths.manifest_dir, f"{paths.root}/index",
        f"{paths.root}/statistics", f"{paths.branch_root}/changelog", f"{paths.branch_root}/consumer",
    ):  # fmt: skip
        yield f"{folder}/{path}"
    found = context.files.get(path)
    if found is not None:
        yield f"{found[0].rpartition('/')[0]}/{path}"


def _is_folder(store: Store, path: str) -> bool:
    # A local folder has a size, too.
    return store.local_path(path) is not None and store.dir_exists(path)


def _data_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(INDEX)


def embedded(context: TableContext, path: str) -> bytes | None:
    """The index embedded in the manifest for ``<data file>.index``, or None."""
    if not path.endswith(INDEX):
        return None
    found = context.files.get(_data_name(path))
    return None if found is None else found[1].file.embedded_index


def open_source(store: Store, context: TableContext, path: str) -> tuple[Source, str | None]:
    """The bytes of a file, or of an embedded index, and a remark that it is one."""
    inside = embedded(context, path)
    if inside is not None and not store.exists(path):
        return Source.of_bytes(path, inside), "embedded in the manifest's entry of the data file; offsets are its own"
    return Source.of_file(store, path), None


def index_of(context: TableContext, path: str) -> str:
    """Where the index of a data file is; a path of an index stays; raises :class:`NotFound` for one without."""
    if path.endswith(INDEX):
        return path
    found = context.files.get(path.rsplit("/", 1)[-1])
    if found is None:
        return path + INDEX
    names = [n for n in found[1].file.extra_files if n.endswith(INDEX)]
    if names:
        return f"{path.rpartition('/')[0]}/{names[0]}"
    if found[1].file.embedded_index is None:
        raise NotFound(f"data file {path} has no file index; rewrite_file_index builds one")
    return path + INDEX


def rows_of(context: TableContext, path: str) -> int | None:
    """The rows of the data file that a path, or the index at it, is of; None if it is not live."""
    name = path.rsplit("/", 1)[-1]
    found = context.files.get(name) or context.files.get(_data_name(name))
    return None if found is None else found[1].file.row_count


def fields_of(context: TableContext, path: str) -> Sequence[DataField]:
    """The columns of the schema that a data file, or the index of one, was written with; else the latest schema's."""
    name = path.rsplit("/", 1)[-1]
    found = context.files.get(name) or context.files.get(_data_name(name))
    schema = context.latest if found is None else context.schema(found[1].file.schema_id)
    return () if schema is None else schema.fields
