"""A back end for browsers. It has the credential and knows its users; anneal has the conversations.

    python3 backend.py         serves http://127.0.0.1:8000; PORT chooses another port
"""

import json
import os
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote

from anneal_client import get_session, list_sessions, open_anneal

BROWSER = Path(__file__).parent.parent / "browser"
FILES = {"/": ("index.html", "text/html"), "/turn-events.mjs": ("turn-events.mjs", "text/javascript")}
MAX_BODY_BYTES = 1_000_000


class Backend(BaseHTTPRequestHandler):
    def user(self) -> str:
        """The user of this request. Your login belongs here."""
        return "demo"

    def do_GET(self) -> None:
        if self.path in FILES:
            name, media_type = FILES[self.path]
            self.answer(200, media_type, (BROWSER / name).read_bytes())
        elif self.path == "/sessions":
            self.relay_refusals(lambda: self.answer_json(list_sessions(self.user())))
        elif self.path.startswith("/sessions/"):
            session = unquote(self.path.removeprefix("/sessions/"))
            self.relay_refusals(lambda: self.answer_history(session))
        else:
            self.refuse(404, "NOT_FOUND")

    def do_POST(self) -> None:
        # A form of another page cannot send JSON, so that page cannot act for this user.
        length = int(self.headers.get("Content-Length", 0))
        if self.path != "/chat" or self.headers.get("Content-Type") != "application/json":
            self.refuse(404, "NOT_FOUND")
        elif not 0 < length <= MAX_BODY_BYTES:
            self.refuse(413, "TOO_LARGE")
        else:
            asked = json.loads(self.rfile.read(length))
            self.relay_refusals(lambda: self.relay_turn(asked))

    def answer_history(self, session: str) -> None:
        history = get_session(session)
        if history["userId"] == self.user():
            self.answer_json(history)
        else:
            self.refuse(404, "NOT_FOUND")

    def relay_turn(self, asked: dict) -> None:
        """Starts a turn, or continues it after Last-Event-ID. Relays the events as they are."""
        session, last_event_id = asked.get("sessionId"), self.headers.get("Last-Event-ID")
        if session and get_session(session, limit=1)["userId"] != self.user():
            return self.refuse(404, "NOT_FOUND")
        if last_event_id and not session:
            return self.refuse(400, "SESSION_MISSING")
        body = {
            "message": asked["message"],
            # With the user's name, so that nobody can repeat the request of another user.
            "requestId": f"{self.user()}:{asked['requestId']}",
            "userId": self.user(),
        }
        if session:
            body["sessionId"] = session
        with open_anneal("chat", body, last_event_id) as events:
            self.send_response(events.status)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                while piece := events.read1(65_536):
                    self.wfile.write(piece)
            except (OSError, HTTPException):
                pass  # one of the two connections was lost: the browser comes back

    def relay_refusals(self, answer) -> None:
        try:
            answer()
        except HTTPError as refusal:
            self.answer(refusal.code, "application/problem+json", refusal.read())
        except (OSError, HTTPException):
            self.refuse(503, "ANNEAL_UNREACHABLE", retryAfterMs=1000)

    def answer_json(self, value: dict) -> None:
        self.answer(200, "application/json", json.dumps(value).encode())

    def refuse(self, status: int, reason: str, **more) -> None:
        problem = {"status": status, "reason": reason, "detail": "", **more}
        self.answer(status, "application/problem+json", json.dumps(problem).encode())

    def answer(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Backend)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
