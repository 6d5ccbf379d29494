"""TTL policies through google.firestore.admin.v1.FirestoreAdmin: UpdateField and GetField, over gRPC.

`FirestoreAdminClient` sets a policy so, as a deployment does; with gcloud's REST call there is nobody to talk to here.
The messages are loaded at the first call: hardly any run needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from tools.emulators.firestore import names
from tools.emulators.firestore.core import Database
from tools.emulators.firestore.errors import FirestoreError, InvalidArgument, Unimplemented

Method = Callable[[bytes, Any], bytes]


class Admin:
    """Raw-bytes methods by their names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def methods(self) -> dict[str, Method]:
        return {"UpdateField": _guarded(self._update_field), "GetField": _guarded(self._get_field)}

    def _update_field(self, data: bytes) -> bytes:
        """Answers with an operation that is done. Only ttl_config can be changed."""
        from google.cloud.firestore_admin_v1.types import field as field_types
        from google.cloud.firestore_admin_v1.types import firestore_admin
        from google.longrunning import operations_pb2

        request: Any = firestore_admin.UpdateFieldRequest.pb().FromString(data)
        if list(request.update_mask.paths) != ["ttl_config"]:
            raise Unimplemented("UpdateField with anything but ttl_config is not implemented by this emulator")
        database, group, path = _parse(request.field.name)
        with self._database.monitor:
            if request.field.HasField("ttl_config"):
                self._database.storage.set_policy(database, group, path)
            elif self._database.storage.policies().get((database, group)) == path:
                self._database.storage.set_policy(database, group, None)
        operation: Any = operations_pb2.Operation(name=f"{request.field.name}/operations/ttl", done=True)
        operation.response.Pack(self._field(field_types, database, group, path))
        answer: bytes = operation.SerializeToString()
        return answer

    def _get_field(self, data: bytes) -> bytes:
        from google.cloud.firestore_admin_v1.types import field as field_types
        from google.cloud.firestore_admin_v1.types import firestore_admin

        request: Any = firestore_admin.GetFieldRequest.pb().FromString(data)
        answer: bytes = self._field(field_types, *_parse(request.name)).SerializeToString()
        return answer

    def _field(self, types: Any, database: str, group: str, path: str) -> Any:
        project, _, identifier = database.partition("/")
        field = types.Field.pb()(
            name=f"projects/{project}/databases/{identifier}/collectionGroups/{group}/fields/{path}"
        )
        with self._database.monitor:
            if self._database.storage.policy(database, group) == path:
                field.ttl_config.state = types.Field.TtlConfig.State.ACTIVE
        return field


def _parse(name: str) -> tuple[str, str, str]:
    """Database, collection group and field path of a field's resource name."""
    parts = name.split("/", 7)
    if len(parts) != 8 or (parts[4], parts[6]) != ("collectionGroups", "fields"):
        raise InvalidArgument(f'Field name "{name}" is not projects/P/databases/D/collectionGroups/C/fields/F')
    return names.database_of(name), parts[5], parts[7]


def _guarded(method: Callable[[bytes], bytes]) -> Method:
    def handle(data: bytes, context: Any) -> bytes:
        try:
            return method(data)
        except FirestoreError as error:
            context.abort(error.code, error.message)
        except ImportError as error:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"the admin API needs google-cloud-firestore whole: {error}")
        raise AssertionError("abort raises")

    return handle
