"""Pipelines with a real mistake in them, each made from the default one, and what `prove` has to say of it.

`edits`: file -> pairs of what stands there and what stands there instead. `cells` are patterns of the cells that show
it; none where two clean runs show it already. `story`: what the finding has to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WORKFLOW = "workflows/main.yaml"
RESERVE = "functions/reserve_stock/main.py"
CHARGE = "functions/charge_orders/main.py"
PUBLISH = "functions/publish_report/main.py"

Edits = dict[str, list[tuple[str, str]]]


@dataclass(frozen=True)
class Broken:
    edits: Edits
    cells: tuple[str, ...]
    story: str


def spoil(project: Path, broken: Broken) -> None:
    for name, pairs in broken.edits.items():
        file = project / name
        text = file.read_text(encoding="utf-8")
        for old, new in pairs:
            assert text.count(old) >= 1, f"{name} has no {old!r} any more"
            text = text.replace(old, new, 1)
        file.write_text(text, encoding="utf-8")


def body(step: str, code: str) -> list[tuple[str, str]]:
    """Put `code` at the beginning of an external step's body."""
    return [(_FIRST_LINE[step], code + _FIRST_LINE[step])]


_FIRST_LINE = {
    CHARGE: '    order = payload.get("order") if',
    PUBLISH: '    ids = payload.get("orders") if',
    RESERVE: "    orders = open_orders(transaction, run)\n",
}

CALL = """    - reserve_stock:
        call: run_step
        args:
          step: reserve_stock
          run: ${run}
        result: reserved
"""

BARE_CALL = """    - where:
        assign:
          - urls: ${json.decode(sys.get_env("STEP_URLS"))}
    - reserve_bare:
        call: http.post
        args:
          url: ${urls.reserve_stock}
          auth: {type: OIDC, audience: "${urls.reserve_stock}"}
          body: {run_id: "${run.run_id}", step: reserve_stock, input: null, run: "${run}"}
        result: bare
    - reserve_stock:
        assign:
          - reserved: ${bare.body.result}
"""

_ORDER = "                      order: ${order}\n"

_ONCE_MORE = """    if run.attempt == 1:
        raise Retry("once more, to be sure")
    return paid


def post(url"""

_SWALLOW = """        except:
          as: error
          steps:
            - go_on:
                return: null
        retry:
          predicate: ${transient}"""

BROKEN = {
    "a step writes before it claims": Broken(
        {
            RESERVE: [
                ("@transactional_step\ndef main(", "@transactional_step\ndef _main("),
                (
                    "def open_orders(",
                    "def main(request: Any) -> Any:\n"
                    '    database().collection("audit").document().set({"step": "reserve_stock"})\n'
                    "    return _main(request)\n\n\ndef open_orders(",
                ),
            ]
        },
        ("workflows/reserve_stock/POST/1/answer-lost",),
        "audit",
    ),
    "a transactional step calls an API": Broken(
        {
            "functions/reserve_stock/step.env": [("RECEIVERS=", 'RECEIVERS="WEBHOOK_URL"')],
            RESERVE: body(
                RESERVE,
                "    import os\n\n    import requests\n\n"
                '    requests.post(os.environ["WEBHOOK_URL"], json={"reserving": True}, timeout=10)\n',
            ),
        },
        ("reserve_stock/firestore/Commit/1/request-lost",),
        "reserve_stock took effect at WEBHOOK_URL 2 times instead of 1",
    ),
    "a key of its own making": Broken(
        {CHARGE: [("run.idempotency_key)", '__import__("uuid").uuid4().hex)')]},
        (),
        "charge_orders calls PAYMENT_URL with an Idempotency-Key of its own making",
    ),
    "a key for each attempt": Broken(
        {CHARGE: [("run.idempotency_key)", "run.idempotency_key + str(run.attempt))")]},
        ("charge_orders/PAYMENT_URL/POST/1/answer-lost",),
        "PAYMENT_URL got an effect of charge_orders that a clean run has not",
    ),
    "no key at all": Broken(
        {CHARGE: [('            headers={"Idempotency-Key": key},\n', "")]},
        ("charge_orders/PAYMENT_URL/POST/1/caller-killed-after",),
        "it sends no Idempotency-Key",
    ),
    "a call past run_step": Broken(
        {WORKFLOW: [(CALL, BARE_CALL)]},
        ("workflows/reserve_stock/POST/1/answer-lost",),
        "the run did not complete",
    ),
    "a retry that does not cover 409": Broken(
        {WORKFLOW: [("error.code == 409 or ", "")]},
        ("charge_orders/PAYMENT_URL/POST/1/caller-killed-after",),
        "the run did not complete",
    ),
    "a lease shorter than the work": Broken(
        {"functions/charge_orders/step.env": [("LEASE=330", "LEASE=20")]},
        ("charge_orders/PAYMENT_URL/POST/1/slow-answer",),
        "LEASE is shorter than the work",
    ),
    "a claim released on success": Broken(
        {CHARGE: [('    return {"payment": post(', '    paid = {"payment": post('), ("def post(url", _ONCE_MORE)]},
        (),
        "step.released",
    ),
    "a bare Increment in an external step": Broken(
        {
            PUBLISH: body(
                PUBLISH,
                "    from google.cloud import firestore\n\n"
                '    database().collection("counters").document("reports").set(\n'
                '        {"n": firestore.Increment(1)}, merge=True\n    )\n',
            )
        },
        ("publish_report/firestore/Commit/2/caller-killed-after",),
        "document counters/reports: n is 2, in a clean run 1",
    ),
    "read, add, write in an external step": Broken(
        {
            PUBLISH: body(
                PUBLISH,
                '    total = database().collection("counters").document("runs")\n'
                '    total.set({"n": ((total.get().to_dict() or {}).get("n") or 0) + 1})\n',
            )
        },
        ("publish_report/firestore/Commit/2/caller-killed-after",),
        "document counters/runs: n is 2, in a clean run 1",
    ),
    "a body that reads the clock for its day": Broken(
        {
            RESERVE: [
                ('"run_id": run.run_id', '"day": __import__("datetime").date.today().isoformat(), "run_id": run.run_id')
            ]
        },
        (),
        "reserve_stock is not deterministic",
    ),
    "a workflow that makes up its input": Broken(
        {WORKFLOW: [(_ORDER, _ORDER + "                      trace: ${uuid.generate()}\n")]},
        (),
        "the workflow is not deterministic: charge_orders",
    ),
    "an error that is swallowed": Broken(
        {CHARGE: [("        raise\n", '        return "unknown"\n')]},
        ("charge_orders/PAYMENT_URL/POST/1/request-lost",),
        "PAYMENT_URL never got the effect of charge_orders S-",
    ),
    "a workflow that goes on after a failed step": Broken(
        {
            WORKFLOW: [
                ("        retry:\n          predicate: ${transient}", _SWALLOW),
                ("max_retries: 22", "max_retries: 0"),
            ]
        },
        ("charge_orders/firestore/BatchGetDocuments/1/caller-killed-before",),
        "PAYMENT_URL never got the effect of charge_orders S-",
    ),
}
