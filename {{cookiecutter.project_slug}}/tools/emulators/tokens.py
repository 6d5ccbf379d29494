"""Identity tokens as the emulators issue and check them: JWTs signed with a secret of this laptop.

Cloud Scheduler and Workflows attach an OpenID Connect token to a call of a Cloud Run service: Google signs it, `aud` is
the asked-for audience and `email` the caller's service account. Here a shared secret signs (HS256), and everything
that depends on who calls, and for which audience, behaves as there.
"""

from __future__ import annotations

from typing import Any

import jwt

ISSUER = "https://accounts.google.com"
LIFETIME = 3600
"""Seconds that a token is good for, as Google's are."""

LEEWAY = 30
"""Seconds of difference between two clocks that are let pass."""


class InvalidToken(Exception):  # noqa: N818 - a verdict, not a failure of the program
    """The token proves nothing here; the text says why, in words for a log line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Tokens:
    """Mints and verifies; the secret (at least 32 bytes) stays within the state folder."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 32:
            raise ValueError("the secret of the tokens has to have at least 32 bytes")
        self._secret = secret

    def mint(self, audience: str, email: str, now: float) -> str:
        """A token for `audience` in the name of `email`, issued at `now` (seconds since the epoch)."""
        claims = {
            "iss": ISSUER,
            "aud": audience,
            "azp": email,
            "sub": email,
            "email": email,
            "email_verified": True,
            "iat": int(now),
            "exp": int(now) + LIFETIME,
        }
        return jwt.encode(claims, self._secret, algorithm="HS256")

    def verify(self, token: str, audience: str, now: float) -> dict[str, Any]:
        """The token's claims.

        Raises InvalidToken: not signed with our secret, for another audience, expired, or issued in the future. Times
        are judged by the emulators' clock, not by the system's, which PyJWT would take.
        """
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._secret,
                algorithms=["HS256"],
                issuer=ISSUER,
                options={
                    "require": ["iss", "aud", "email", "iat", "exp"],
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidTokenError as error:
            raise InvalidToken(f"not a token of this chain: {error}") from None
        if claims["aud"] != audience:
            raise InvalidToken(f"the token is for audience {claims['aud']!r}, not {audience!r}")
        if not _is_time(claims["exp"]) or claims["exp"] + LEEWAY <= now:
            raise InvalidToken("the token has expired")
        if not _is_time(claims["iat"]) or claims["iat"] - LEEWAY > now:
            raise InvalidToken("the token was issued in the future")
        return claims


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
