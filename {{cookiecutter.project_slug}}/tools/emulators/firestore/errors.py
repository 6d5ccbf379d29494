"""What the emulator refuses, as Firestore would.

FirestoreError          carries the gRPC status that the client gets
├── InvalidArgument     the request can never be carried out: INVALID_ARGUMENT
├── NotFound            a document that has to be there is not: NOT_FOUND
├── AlreadyExists       a document that must not be there is: ALREADY_EXISTS
├── FailedPrecondition  the update time is another: FAILED_PRECONDITION
├── Aborted             another commit came between: ABORTED, worth a new transaction
└── Unimplemented       Firestore has it, this emulator does not: UNIMPLEMENTED
StorageError            the file cannot be used; ends the program with one line
"""

from __future__ import annotations

import grpc


class FirestoreError(Exception):
    """Base of everything that a client gets to see."""

    code: grpc.StatusCode = grpc.StatusCode.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(FirestoreError):  # noqa: N818
    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(FirestoreError):  # noqa: N818
    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(FirestoreError):  # noqa: N818
    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPrecondition(FirestoreError):  # noqa: N818
    code = grpc.StatusCode.FAILED_PRECONDITION


class Aborted(FirestoreError):  # noqa: N818
    code = grpc.StatusCode.ABORTED


class Unimplemented(FirestoreError):  # noqa: N818
    code = grpc.StatusCode.UNIMPLEMENTED


class StorageError(Exception):
    """The file is not ours, not writable, or in use by another server."""
