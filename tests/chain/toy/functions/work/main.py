"""A step without any protection: each call is an effect."""

import os
import sys
from typing import Any

import requests
from google.cloud import firestore

client = firestore.Client(project=os.environ["GOOGLE_CLOUD_PROJECT"], database=os.environ["FIRESTORE_DATABASE"])


def main(request: Any) -> dict[str, str]:
    payload = request.get_json()
    if payload["slot"].startswith("2000"):
        raise RuntimeError("a bug in the body")
    key = f"{payload['slot']} {os.environ['TOY_KEY']}"
    answer = requests.post(os.environ["TOY_URL"], json=payload, headers={"Idempotency-Key": key}, timeout=30)
    answer.raise_for_status()
    client.collection("toys").add({"slot": payload["slot"]}, retry=None, timeout=30)
    sys.stdout.write('{"event": "work.done", "severity": "INFO"}\n')
    return {"id": answer.json()["id"]}
