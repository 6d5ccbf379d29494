"""How a CSV of orders or of stock becomes documents: what `./pipeline load FILE` writes to Firestore.

    order_id,placed_at,customer,email,sku,quantity,amount,currency,note     ->  orders/{order_id}
    sku,quantity                                                            ->  stock/{sku}

The first line says which it is. Money is never a float: an amount is read as digits and kept as a whole number of the
currency's minor units (ISO 4217: cents; yen, which have none; fils, of which 1000 make a dinar).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.loading import BadRow

DIGITS = {
    **dict.fromkeys(
        [
            "AED",
            "AFN",
            "ALL",
            "AMD",
            "AOA",
            "ARS",
            "AUD",
            "AWG",
            "AZN",
            "BAM",
            "BBD",
            "BDT",
            "BMD",
            "BND",
            "BOB",
            "BRL",
            "BSD",
            "BTN",
            "BWP",
            "BYN",
            "BZD",
            "CAD",
            "CDF",
            "CHF",
            "CNY",
            "COP",
            "CRC",
            "CUP",
            "CVE",
            "CZK",
            "DKK",
            "DOP",
            "DZD",
            "EGP",
            "ERN",
            "ETB",
            "EUR",
            "FJD",
            "FKP",
            "GBP",
            "GEL",
            "GHS",
            "GIP",
            "GMD",
            "GTQ",
            "GYD",
            "HKD",
            "HNL",
            "HTG",
            "HUF",
            "IDR",
            "ILS",
            "INR",
            "IRR",
            "JMD",
            "KES",
            "KGS",
            "KHR",
            "KPW",
            "KYD",
            "KZT",
            "LAK",
            "LBP",
            "LKR",
            "LRD",
            "LSL",
            "MAD",
            "MDL",
            "MGA",
            "MKD",
            "MMK",
            "MNT",
            "MOP",
            "MRU",
            "MUR",
            "MVR",
            "MWK",
            "MXN",
            "MYR",
            "MZN",
            "NAD",
            "NGN",
            "NIO",
            "NOK",
            "NPR",
            "NZD",
            "PAB",
            "PEN",
            "PGK",
            "PHP",
            "PKR",
            "PLN",
            "QAR",
            "RON",
            "RSD",
            "RUB",
            "SAR",
            "SBD",
            "SCR",
            "SDG",
            "SEK",
            "SGD",
            "SHP",
            "SLE",
            "SOS",
            "SRD",
            "SSP",
            "STN",
            "SVC",
            "SYP",
            "SZL",
            "THB",
            "TJS",
            "TMT",
            "TOP",
            "TRY",
            "TTD",
            "TWD",
            "TZS",
            "UAH",
            "USD",
            "UYU",
            "UZS",
            "VED",
            "VES",
            "WST",
            "XCD",
            "YER",
            "ZAR",
            "ZMW",
        ],
        2,
    ),
    **dict.fromkeys(
        [
            "BIF",
            "CLP",
            "DJF",
            "GNF",
            "ISK",
            "JPY",
            "KMF",
            "KRW",
            "PYG",
            "RWF",
            "UGX",
            "VND",
            "VUV",
            "XAF",
            "XOF",
            "XPF",
        ],
        0,
    ),
    **dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3),
}
"""Currency -> decimal places of its minor unit (ISO 4217, list one)."""

LARGEST = 10**15
"""Minor units; far within the 64 bits of a Firestore integer, also for a sum over a day."""

Document = tuple[str, dict[str, Any]]


def documents(path: Path) -> Iterator[Document]:
    """Each row's document path and fields. Raises BadRow; column counts the fields of a row from 1."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        try:
            yield from _documents(rows)
        except csv.Error as error:
            raise BadRow(rows.line_num, 0, f"not CSV: {error}") from None


def minor_units(text: str, currency: str) -> int:
    """`text`, such as 12.50, in the minor units of `currency`. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]+))?", text)
    if not match:
        raise ValueError(f"{text!r} is no amount; write digits with a point, such as 12.50")
    whole, fraction = match[1], match[2] or ""
    if len(fraction) > DIGITS[currency]:
        raise ValueError(f"{text!r} has {len(fraction)} decimals; {currency} has {DIGITS[currency]}")
    amount = int(whole + fraction.ljust(DIGITS[currency], "0"))
    if not 0 < amount <= LARGEST:
        raise ValueError(f"{text!r} is not above zero and up to {LARGEST} minor units")
    return amount


def _documents(rows: Any) -> Iterator[Document]:
    header: list[str] = next(rows, [])
    if header not in (list(ORDER), list(STOCK)):
        raise BadRow(1, 0, f"the first line has to be {','.join(ORDER)} or {','.join(STOCK)}")
    make, readers = (_order, ORDER) if header == list(ORDER) else (_stock, STOCK)
    first_lines: dict[str, int] = {}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise BadRow(rows.line_num, 0, f"{len(row)} fields; {len(header)} are needed")
        fields: dict[str, Any] = {}
        for column, (name, text) in enumerate(zip(header, row, strict=True), 1):
            try:
                fields[name] = readers[name](text)
            except ValueError as error:
                raise BadRow(rows.line_num, column, f"{name}: {error}") from None
        try:
            path, content = make(fields)
        except ValueError as error:
            raise BadRow(rows.line_num, header.index("amount") + 1, f"amount: {error}") from None
        if path in first_lines:
            raise BadRow(rows.line_num, 1, f"{header[0]}: {row[0]!r} is in line {first_lines[path]} already")
        first_lines[path] = rows.line_num
        yield path, content


def _order(fields: dict[str, Any]) -> Document:
    order = fields.pop("order_id")
    amount = minor_units(fields["amount"], fields["currency"])
    return f"orders/{order}", {**fields, "amount": amount, "status": "open", "open_since": fields["placed_at"]}


def _stock(fields: dict[str, Any]) -> Document:
    return f"stock/{fields.pop('sku')}", fields


def _id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise ValueError(f"{text!r} is no id; write up to 64 letters, digits and . _ -")
    return text


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = datetime.min
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} is no instant; write it with its offset, such as 2026-01-15T09:30:00+01:00")
    if not 1 < instant.year < 9999:  # in UTC it may be in no year that there is
        raise ValueError(f"{text!r} is no instant of this time")
    return instant.astimezone(UTC)


def _name(text: str) -> str:
    if not text.strip() or len(text) > 200 or not text.isprintable():
        raise ValueError(f"{text!r} is no name; write up to 200 characters in one line")
    return text


def _email(text: str) -> str | None:
    if text and not re.fullmatch(r"[^@\s]+@[^@\s]+", text):
        raise ValueError(f"{text!r} is no e-mail address; leave it empty if there is none")
    return text or None


def _quantity(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _ordered(text: str) -> int:
    if not (quantity := _quantity(text)):
        raise ValueError("an order is for one or more")
    return quantity


def _currency(text: str) -> str:
    if text not in DIGITS:
        raise ValueError(f"{text!r} is no currency of ISO 4217; write three capitals such as EUR")
    return text


def _note(text: str) -> str | None:
    if len(text) > 1000:
        raise ValueError("longer than 1000 characters")
    return text or None


ORDER: dict[str, Callable[[str], Any]] = {
    "order_id": _id,
    "placed_at": _instant,
    "customer": _name,
    "email": _email,
    "sku": _id,
    "quantity": _ordered,
    "amount": str,
    "currency": _currency,
    "note": _note,
}
STOCK: dict[str, Callable[[str], Any]] = {"sku": _id, "quantity": _quantity}
