"""Resource names: `projects/P/databases/D/documents/a/b` is the document `a/b` of the database `P/D`.

Inside the emulator a database is the string `P/D`, a document its path below `documents`, a collection likewise.
"""

from __future__ import annotations

from functools import lru_cache

from tools.emulators.firestore import limits
from tools.emulators.firestore.errors import InvalidArgument

NAME_OVERHEAD = 16
"""Bytes that every document name counts beside its segments."""


def split(name: str) -> tuple[str, str]:
    """Database and path of a full name; the path of `.../documents` itself is empty. Raises InvalidArgument."""
    parts = name.split("/", 5)
    if len(parts) < 5 or (parts[0], parts[2], parts[4]) != ("projects", "databases", "documents"):
        raise InvalidArgument(f'Resource name "{name}" is not projects/P/databases/D/documents/...')
    return _database(parts, name), parts[5] if len(parts) > 5 else ""


def database_of(name: str) -> str:
    """`P/D` of `projects/P/databases/D`, whatever follows. Raises InvalidArgument."""
    parts = name.split("/", 4)
    if len(parts) < 4 or (parts[0], parts[2]) != ("projects", "databases"):
        raise InvalidArgument(f'Database name "{name}" is not projects/P/databases/D')
    return _database(parts, name)


def _database(parts: list[str], name: str) -> str:
    if not parts[1] or not parts[3]:
        raise InvalidArgument(f'Resource name "{name}" lacks its project or its database.')
    return f"{parts[1]}/{parts[3]}"


def full(database: str, path: str) -> str:
    project, _, identifier = database.partition("/")
    return f"projects/{project}/databases/{identifier}/documents/{path}"


def parent(path: str) -> str:
    """The path around a document (its collection) or around a collection (its document, or nothing)."""
    return path.rpartition("/")[0]


def collection_id(path: str) -> str:
    """The id of a document's collection: what its collection group is called."""
    return path.rsplit("/", 2)[-2]


def scopes(path: str) -> tuple[str, str, str]:
    """What a query that may find this document reads: its collection, its collection group (`*id`), or all (`*`)."""
    return parent(path), f"*{collection_id(path)}", "*"


def join(parent_path: str, child: str) -> str:
    return f"{parent_path}/{child}" if parent_path else child


@lru_cache(maxsize=4096)
def check_document(path: str) -> str:
    """The path, if it is one of a document. Raises InvalidArgument otherwise."""
    segments = path.split("/")
    if len(segments) % 2:
        raise InvalidArgument(f'Document name "{path}" lacks an even number of segments.')
    for segment in segments:
        check_id(segment)
    if len(segments) > 2 * limits.COLLECTION_DEPTH:
        raise InvalidArgument(f"Collections are nested more than {limits.COLLECTION_DEPTH} levels deep.")
    if (size := size_of(path)) > limits.NAME_BYTES:
        raise InvalidArgument(f"The document's name has {size} bytes; {limits.NAME_BYTES} are allowed.")
    return path


@lru_cache(maxsize=4096)
def check_parent(path: str) -> str:
    """The path, if collections can lie under it: empty, or a document's. Raises InvalidArgument otherwise."""
    return check_document(path) if path else path


def check_id(segment: str) -> None:
    if not segment or segment in (".", "..") or "/" in segment or is_reserved(segment):
        raise InvalidArgument(f'Resource id "{segment[:60]}" is invalid because it is reserved or empty.')
    if len(segment.encode()) > limits.ID_BYTES:
        raise InvalidArgument(f"A resource id is longer than {limits.ID_BYTES} bytes.")


def is_reserved(name: str) -> bool:
    """`__...__`: Firestore's own, for ids and for field names."""
    return len(name) > 3 and name.startswith("__") and name.endswith("__")


@lru_cache(maxsize=4096)
def size_of(path: str) -> int:
    """Bytes that a document's name counts."""
    return sum(len(segment.encode()) + 1 for segment in path.split("/")) + NAME_OVERHEAD
