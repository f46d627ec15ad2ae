"""Calls anneal over HTTP, with the standard library alone.

ANNEAL_HTTP is the address of anneal, ANNEAL_TOKEN the API key, if anneal requires one.
"""

import json
import os
import time
from http.client import HTTPException, HTTPResponse
from typing import Any, Iterator
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

ANNEAL = os.environ.get("ANNEAL_HTTP", "http://127.0.0.1:8080")
TOKEN = os.environ.get("ANNEAL_TOKEN")
AGENT = "tutorial"
# anneal sends a comment after 15 s of silence. A connection that is silent for longer is lost.
SILENCE_SECONDS = 40
# Most tries in a row that bring no event.
TRIES = 5


def open_anneal(path: str, body: dict | None = None, last_event_id: str | None = None) -> HTTPResponse:
    """Sends a request about the agent. Returns the answer; raises HTTPError for a refusal."""
    request = Request(f"{ANNEAL}/api/agents/{AGENT}/{path}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    if last_event_id:
        request.add_header("Last-Event-ID", last_event_id)
    if TOKEN:
        request.add_header("Authorization", f"Bearer {TOKEN}")
    return urlopen(request, timeout=SILENCE_SECONDS)


def read_events(answer: HTTPResponse) -> Iterator[tuple[str, dict]]:
    """Yields the id and the data of each event that arrives before the connection ends."""
    event_id = ""
    for line in answer:
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            event_id = value
        elif name == "data":
            yield event_id, json.loads(value)


def turn_events(body: dict) -> Iterator[dict]:
    """Runs a turn. Yields each of its events once. Continues after a lost connection.

    The body needs a requestId: before the first event it alone prevents a second question.
    """
    last_event_id = None
    failures = 0
    while True:
        wait_seconds = 1.0
        try:
            with open_anneal("chat", body, last_event_id) as answer:
                for event_id, event in read_events(answer):
                    last_event_id, failures = event_id, 0
                    yield event
                    if event["type"] in ("done", "error"):
                        return
        except HTTPError as refusal:
            problem = json.load(refusal)
            if "retryAfterMs" not in problem:
                raise RuntimeError(f"{problem['reason']}: {problem['detail']}") from refusal
            wait_seconds = problem["retryAfterMs"] / 1000
        except (OSError, HTTPException):
            pass  # the connection was lost, or anneal is being restarted
        failures += 1
        if failures == TRIES:
            raise ConnectionError("anneal cannot be reached")
        time.sleep(wait_seconds)


def get_session(session: str, **parameters: Any) -> dict:
    """Returns a session with its messages. Parameters: after, limit."""
    with open_anneal(f"sessions/{quote(session, safe='')}?{urlencode(parameters)}") as answer:
        return json.load(answer)


def list_sessions(user: str) -> dict:
    """Returns the user's newest sessions, without their messages."""
    with open_anneal(f"sessions?{urlencode({'userId': user})}") as answer:
        return json.load(answer)
