"""A load that follows proto/service_config.json as gRPC itself reads it: appends, reads, contexts and watches without a pause,
until its standard input ends. Then it prints what came of it, as JSON.

rolling_client.py ADDRESS,ADDRESS… SERVICE_CONFIG CONVERSATION…
"""

import json
import sys
import threading
import time
from pathlib import Path

import grpc
from anneal.v1 import context_service_pb2 as context, context_service_pb2_grpc as context_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc

# Whoever waits for a restarted server must not wait for longer than one restart takes.
RECONNECT = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 400)]

over = threading.Event()
lock = threading.Lock()
told = {"calls": 0, "failed": [], "slowest_ms": 0.0, "replayed": 0, "resumed": 0, "appended": {}, "watched": {}}


def channel(target: str, config: dict) -> grpc.Channel:
    # A list of addresses is no name that could stand in a request.
    options = [("grpc.service_config", json.dumps(config)), ("grpc.default_authority", "anneal"), *RECONNECT]
    return grpc.insecure_channel(target, options=options)


def without_retries(config: dict) -> dict:
    """The same, for callers who leave retries out: a stop in good order must need none."""
    methods = [{key: value for key, value in method.items() if key != "retryPolicy"} for method in config["methodConfig"]]
    return {**config, "methodConfig": methods}


def called(call, ask):
    """The answer; None where the caller sees a failure, which is written down."""
    began = time.monotonic()
    try:
        return call(ask)
    except grpc.RpcError as error:
        with lock:
            told["failed"].append(f"{type(ask).__name__}: {error.code().name}: {error.details()}")
        return None
    finally:
        with lock:
            told["calls"] += 1
            told["slowest_ms"] = max(told["slowest_ms"], (time.monotonic() - began) * 1000)


def write(line: grpc.Channel, talk: str) -> None:
    stub, contexts = messages_grpc.MessageServiceStub(line), context_grpc.ContextServiceStub(line)
    number = 0
    while not over.is_set():
        part = message.Part(text=message.TextPart(text=f"said {number}"))
        ask = messages.AppendMessagesRequest(
            conversation_id=talk, request_id=f"r{number}", messages=[message.NewMessage(role=message.ROLE_USER, parts=[part])])
        stored = called(stub.AppendMessages, ask)
        if stored is not None:
            number += 1
            with lock:
                told["appended"][talk] = number
                told["replayed"] += stored.replayed
        called(stub.ListMessages, messages.ListMessagesRequest(conversation_id=talk, newest_first=True, page_size=5))
        called(contexts.BuildContext, context.BuildContextRequest(conversation_id=talk, budget_tokens=2000))


def watch(line: grpc.Channel, talk: str) -> None:
    """Ends of watches are what a server that stops says; whoever watches goes on behind the last event."""
    stub = messages_grpc.MessageServiceStub(line)
    position, seen, started = "", [], 0
    while not (over.is_set() and len(seen) >= told["appended"].get(talk, 0)):
        behind = {"position": position} if position else {"after_message_id": 0}
        started += 1
        try:
            for event in stub.WatchConversation(messages.WatchConversationRequest(conversation_id=talk, without_content=True, **behind), timeout=3):
                position = event.position or position
                if event.WhichOneof("event") == "message_appended":
                    seen.append(event.message_appended.message_id)
                if over.is_set() and len(seen) >= told["appended"].get(talk, 0):
                    break
        except grpc.RpcError as error:
            # Its own three seconds are over, or a server has stopped.
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                with lock:
                    told["failed"].append(f"WatchConversation: {error.code().name}: {error.details()}")
    with lock:
        told["watched"][talk] = seen == list(range(1, len(seen) + 1)) and len(seen)
        told["resumed"] += started - 1


def main(addresses: str, config: str, *talks: str) -> None:
    config = json.loads(Path(config).read_text())
    target = "ipv4:" + addresses
    patient, strict = channel(target, config), channel(target, without_retries(config))
    workers = [threading.Thread(target=write, args=((patient, strict)[place % 2], talk)) for place, talk in enumerate(talks)]
    workers += [threading.Thread(target=watch, args=(patient, talk)) for talk in talks[:2]]
    for worker in workers:
        worker.start()
    print("under way", flush=True)
    sys.stdin.read()
    over.set()
    for worker in workers:
        worker.join()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
