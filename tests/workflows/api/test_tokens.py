"""Tokens: what is accepted, and the reason each other one is refused for."""

from __future__ import annotations

import jwt
import pytest

from tools.emulators.tokens import LIFETIME, InvalidToken, Tokens

SECRET = b"a secret of the laptop, thirty-two bytes or more"
NOW = 1_768_445_000.5
AUDIENCE = "http://127.0.0.1:9000"
EMAIL = "workflow@p.iam.gserviceaccount.com"


def test_a_minted_token_names_caller_and_audience() -> None:
    tokens = Tokens(SECRET)
    claims = tokens.verify(tokens.mint(AUDIENCE, EMAIL, NOW), AUDIENCE, NOW + LIFETIME - 1)
    assert claims["email"] == EMAIL
    assert claims["aud"] == AUDIENCE


@pytest.mark.parametrize(
    ("audience", "later", "reason"),
    [
        (AUDIENCE + "/", 0, "is for audience"),
        (AUDIENCE, LIFETIME + 60, "expired"),
        (AUDIENCE, -120, "issued in the future"),
    ],
)
def test_refusals(audience: str, later: float, reason: str) -> None:
    tokens = Tokens(SECRET)
    with pytest.raises(InvalidToken, match=reason):
        tokens.verify(tokens.mint(AUDIENCE, EMAIL, NOW), audience, NOW + later)


def test_another_secret_another_algorithm_and_rubbish_are_refused() -> None:
    tokens = Tokens(SECRET)
    unsigned = jwt.encode({"aud": AUDIENCE, "email": EMAIL, "iat": 0, "exp": 2**40}, "", algorithm="none")
    for token in (Tokens(SECRET[::-1]).mint(AUDIENCE, EMAIL, NOW), unsigned, "x.y.z", ""):
        with pytest.raises(InvalidToken, match="not a token of this chain"):
            tokens.verify(token, AUDIENCE, NOW)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Tokens(b"short")
