"""Loading: what a CSV means, and what is wrong with one, to the line and column."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, module
from tools.loading import BadRow

load = module(ROOT / "data" / "load.py")

HEADER = "order_id,placed_at,customer,email,sku,quantity,amount,currency,note"
GOOD = 'A-1,2026-01-15T09:30:00+01:00,"O\'Neill, Sinéad",,MUG,2,12.5,EUR,"gift, please wrap"'


def documents(folder: Path, *rows: str, header: str = HEADER) -> list[tuple[str, dict[str, Any]]]:
    file = folder / "orders.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return list(load.documents(file))


def test_an_order(tmp_path: Path) -> None:
    placed = datetime(2026, 1, 15, 8, 30, tzinfo=UTC)
    order = {
        "placed_at": placed,
        "open_since": placed,
        "customer": "O'Neill, Sinéad",
        "email": None,
        "sku": "MUG",
        "quantity": 2,
        "amount": 1250,
        "currency": "EUR",
        "note": "gift, please wrap",
        "status": "open",
    }
    assert documents(tmp_path, GOOD) == [("orders/A-1", order)]


def test_stock(tmp_path: Path) -> None:
    found = documents(tmp_path, "MUG,0", "LAMP,7", header="sku,quantity")
    assert found == [("stock/MUG", {"quantity": 0}), ("stock/LAMP", {"quantity": 7})]


@pytest.mark.parametrize(
    ("text", "currency", "units"),
    [
        ("12.50", "EUR", 1250),
        ("12.5", "EUR", 1250),
        ("12", "EUR", 1200),
        ("0.01", "USD", 1),
        ("0.1", "GBP", 10),
        ("1500", "JPY", 1500),
        ("1.234", "KWD", 1234),
        ("1.2", "BHD", 1200),
        ("9007199254740.93", "EUR", 900719925474093),  # beyond what a float keeps
    ],
)
def test_money_is_whole_minor_units(text: str, currency: str, units: int) -> None:
    assert load.minor_units(text, currency) == units


@pytest.mark.parametrize(
    ("field", "column", "text", "said"),
    [
        ("A-1", 1, "A 1", "order_id: 'A 1' is no id"),
        ("2026-01-15T09:30:00+01:00", 2, "2026-01-15", "placed_at: '2026-01-15' is no instant"),
        ("2026-01-15T09:30:00+01:00", 2, "2026-01-15T09:30:00", "with its offset"),
        (
            "2026-01-15T09:30:00+01:00",
            2,
            "0001-01-01T00:00:00+14:00",
            "placed_at: '0001-01-01T00:00:00+14:00' is no instant",
        ),
        ("2026-01-15T09:30:00+01:00", 2, "yesterday", "placed_at: 'yesterday' is no instant"),
        ('"O\'Neill, Sinéad"', 3, " ", "customer: ' ' is no name"),
        (",MUG", 4, "nobody,MUG", "email: 'nobody' is no e-mail address"),
        ("MUG", 5, "../etc", "sku: '../etc' is no id"),
        (",2,", 6, ",0,", "quantity: an order is for one or more"),
        (",2,", 6, ",-1,", "quantity: '-1' is no whole number"),
        (",2,", 6, ",1.5,", "quantity: '1.5' is no whole number"),
        ("12.5", 7, "12.505", "amount: '12.505' has 3 decimals; EUR has 2"),
        ("12.5", 7, "0", "amount: '0' is not above zero"),
        ("12.5", 7, "-3", "amount: '-3' is no amount"),
        ("12.5", 7, "1e3", "amount: '1e3' is no amount"),
        ("12.5", 7, "٣", "is no amount"),
        ("12.5", 7, "NaN", "is no amount"),
        ("EUR", 8, "eur", "currency: 'eur' is no currency"),
        ("EUR", 8, "XXX", "currency: 'XXX' is no currency"),
        ("gift", 9, "x" * 1001, "note: longer than 1000 characters"),
        (",MUG", 0, "", "8 fields; 9 are needed"),
        ("EUR", 0, "EUR,more", "10 fields; 9 are needed"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, field: str, column: int, text: str, said: str) -> None:
    bad = GOOD.replace("A-1", "A-2") if field != "A-1" else GOOD
    with pytest.raises(BadRow) as caught:
        documents(tmp_path, GOOD.replace("A-1", "A-0"), bad.replace(field, text, 1))
    assert (caught.value.line, caught.value.column) == (3, column)
    assert said in caught.value.message


def test_an_order_given_twice_names_both_lines(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match="line 4, column 1: order_id: 'A-1' is in line 2 already"):
        documents(tmp_path, GOOD, GOOD.replace("A-1", "A-2"), GOOD)


def test_the_line_counts_where_a_field_has_line_breaks(tmp_path: Path) -> None:
    long = GOOD.replace("please wrap", "please\nwrap\nit")
    with pytest.raises(BadRow, match="line 6, column 6"):
        documents(tmp_path, long, "", GOOD.replace("A-1", "A-2").replace(",2,", ",two,"))


def test_a_file_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match="line 1, column 0: the first line has to be order_id,"):
        documents(tmp_path, header="id,name")
    with pytest.raises(BadRow, match="line 2, column 0: not CSV"):
        documents(tmp_path, GOOD.replace('wrap"', "wrap"))


def test_the_sample_is_as_various_as_it_claims() -> None:
    orders = [fields for _, fields in load.documents(ROOT / "data" / "orders.csv")]
    assert len(orders) >= 200
    assert {0, 2, 3} == {load.DIGITS[order["currency"]] for order in orders}
    assert len({order["customer"] for order in orders}) < len(orders)
    assert any(order["email"] is None for order in orders)
    assert any("," in order["customer"] for order in orders)
    assert any(not order["customer"].isascii() for order in orders)
