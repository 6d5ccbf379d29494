"""What Google and the records answer, as one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from google.api_core import exceptions as api
from google.auth.exceptions import GoogleAuthError

from exactly_once.errors import ExactlyOnceError, Refusal
from tools.errors import UserError

LOGIN = "your Google credentials are missing or have expired: gcloud auth application-default login"

ROLES = {
    "Firestore": "roles/datastore.viewer to look, roles/datastore.user to change",
    "Workflows": "roles/workflows.viewer to look, roles/workflows.invoker to start and cancel",
}
"""What an operator needs on the project, by the service that refused."""

_EXPIRED = ("Reauthentication", "metadata from plugin failed", "invalid_grant", "credentials")


@contextmanager
def told() -> Iterator[None]:
    """Inside, what can go wrong outside becomes a UserError."""
    try:
        yield
    except Refusal as refused:
        raise UserError(refused.message) from None
    except (ExactlyOnceError, api.GoogleAPIError, GoogleAuthError) as error:
        raise UserError(words(error)) from None


def words(error: BaseException) -> str:
    """One line for an error of the runtime or of Google's clients, by what is behind it."""
    behind = list(_chain(error))
    text = " ".join(str(each) for each in behind)
    if any(isinstance(each, (GoogleAuthError, api.Unauthenticated)) for each in behind):
        return LOGIN
    if any(isinstance(each, api.ServiceUnavailable) for each in behind) and any(word in text for word in _EXPIRED):
        return LOGIN
    service = "Workflows" if "orkflow" in text else "Firestore"
    if any(isinstance(each, api.Forbidden) for each in behind):
        return f"{service} refuses you: ask for {ROLES[service]} on the project ({_line(error)})"
    if any(isinstance(each, api.NotFound) for each in behind):
        return (
            f"{service} does not have it: is it deployed, and are PROJECT, REGION and DATABASE right? ({_line(error)})"
        )
    if any(isinstance(each, (api.ServiceUnavailable, api.DeadlineExceeded)) for each in behind):
        return f"{service} does not answer: try again; on the laptop, does ./pipeline local run? ({_line(error)})"
    return _line(error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
