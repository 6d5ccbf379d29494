"""Firestore's limits, from "Usage and limits" and "Storage size calculations" of its documentation.

Sizes are in bytes. Each is refused with INVALID_ARGUMENT, as production does.
"""

from __future__ import annotations

MIB = 1_048_576

DOCUMENT_BYTES = MIB
"""Name, fields and 32 bytes, by the documented formula."""

VALUE_BYTES = MIB - 89
"""One string, in UTF-8, or one bytes value."""

REQUEST_BYTES = 10 * MIB

NAME_BYTES = 6 * 1024
"""A document's full path, by the size formula."""

ID_BYTES = 1500
"""A document id or a collection id, in UTF-8."""

COLLECTION_DEPTH = 100
"""Collections within each other."""

FIELD_NAME_BYTES = 1500
"""A field's name, in UTF-8."""

FIELD_PATH_BYTES = 1500
"""The names of the fields around a field and its own, with their dots."""

VALUE_DEPTH = 20
"""Maps and arrays within each other."""

TRANSFORMS = 500
"""Field transformations on one document in one commit."""

INDEX_ENTRIES = 40_000
"""Entries of one document in the indexes that Firestore makes by itself: two a plain field, one a distinct element
of an array. (Composite indexes and exemptions are not known here.)"""

DISJUNCTIONS = 30
"""Disjuncts of a query after `in`, `array-contains-any` and OR are multiplied out."""

NOT_IN_VALUES = 10

FILTERS = 100
"""Filters, orders and parents of a query in all."""

AGGREGATIONS = 5

BATCH_WRITES = 500
"""Writes in one BatchWrite."""

TRANSACTION_SECONDS = 270.0
"""From its first RPC to its last."""

TRANSACTION_IDLE_SECONDS = 60.0
"""Between two RPCs of a transaction."""

HISTORY_SECONDS = 3600.0
"""How far back a read time may lie (without point-in-time recovery)."""
