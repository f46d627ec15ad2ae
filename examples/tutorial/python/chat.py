"""Sends one message, and prints the answer as it arrives.

    python3 chat.py "What is a race?"            begins a session
    python3 chat.py "And a deadlock?" SESSION    continues it
    python3 chat.py --history SESSION            prints it
"""

import sys
import uuid

from anneal_client import get_session, turn_events


def print_turn(message: str, session: str | None) -> None:
    body = {"message": message, "requestId": str(uuid.uuid4())}
    if session:
        body["sessionId"] = session
    for event in turn_events(body):
        match event["type"]:
            case "text":
                print(event["text"], end="", flush=True)
            case "attempt":
                print("\n[the answer begins again]")
            case "done":
                print(f"\nsession {event['sessionId']}")
            case "error":
                sys.exit(f"\n{event['problem']['reason']}: {event['problem']['detail']}")


def print_history(session: str) -> None:
    for message in get_session(session)["messages"]:
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        print(f"{message['role']}: {' '.join(texts)}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--history", session]:
            print_history(session)
        case [message]:
            print_turn(message, None)
        case [message, session]:
            print_turn(message, session)
        case _:
            sys.exit(__doc__)
