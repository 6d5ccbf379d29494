"""Firestore in Native mode for one machine: the gRPC API on SQLite, in one process, for many clients.

    python -m tools.emulators.firestore --port 8080 --file state.db

google-cloud-firestore talks to it unchanged (FIRESTORE_EMULATOR_HOST). From the outside in:

    __main__, server    the command, the process and its gRPC server
    service, admin      the RPCs: what a request means
    core                reads and commits, in and out of transactions
    queries, filters    filters, orders, cursors, aggregations
    commits, transforms what a write does
    transactions        snapshots, holds on documents, idle and total limits
    ttl                 deletion of expired documents
    storage             documents and their past on SQLite
    values, names       Firestore's order, sizes and resource names
    limits, errors      what is refused, and how
    control             beside all this: faults set from outside, with wires before the server

What it does not know it refuses with UNIMPLEMENTED; LIMITATIONS.md says where it differs from production.
"""
