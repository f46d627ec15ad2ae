"""Calls the servers without a pause (appends, reads, contexts, watches) until its standard input ends. Then
it prints a report as JSON. gRPC gets proto/service_config.json and follows it, without the retries in half
of the conversations.

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

# The backoff must not be longer than a restart takes.
RECONNECT = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 400)]

# Set when the calls must end.
must_end = threading.Event()
lock = threading.Lock()
report = {"calls": 0, "failed": [], "slowest_ms": 0.0, "replayed": 0, "resumed": 0, "appended": {}, "watched": {}}


def channel(target: str, config: dict) -> grpc.Channel:
    # The target is a list of addresses, which is not a valid authority of a request.
    options = [("grpc.service_config", json.dumps(config)), ("grpc.default_authority", "anneal"), *RECONNECT]
    return grpc.insecure_channel(target, options=options)


def without_retries(config: dict) -> dict:
    """The configuration without retries: a graceful stop must not need them."""
    methods = [{key: value for key, value in method.items() if key != "retryPolicy"} for method in config["methodConfig"]]
    return {**config, "methodConfig": methods}


def call_and_record(call, ask):
    """Makes a call. Returns the answer, or None after a failure, which is recorded."""
    began = time.monotonic()
    try:
        return call(ask)
    except grpc.RpcError as error:
        with lock:
            report["failed"].append(f"{type(ask).__name__}: {error.code().name}: {error.details()}")
        return None
    finally:
        with lock:
            report["calls"] += 1
            report["slowest_ms"] = max(report["slowest_ms"], (time.monotonic() - began) * 1000)


def append_and_read(connection: grpc.Channel, conversation: str) -> None:
    stub, contexts = messages_grpc.MessageServiceStub(connection), context_grpc.ContextServiceStub(connection)
    number = 0
    while not must_end.is_set():
        part = message.Part(text=message.TextPart(text=f"said {number}"))
        ask = messages.AppendMessagesRequest(
            conversation_id=conversation, request_id=f"r{number}", messages=[message.NewMessage(role=message.ROLE_USER, parts=[part])])
        stored = call_and_record(stub.AppendMessages, ask)
        if stored is not None:
            number += 1
            with lock:
                report["appended"][conversation] = number
                report["replayed"] += stored.replayed
        call_and_record(stub.ListMessages, messages.ListMessagesRequest(conversation_id=conversation, newest_first=True, page_size=5))
        call_and_record(contexts.BuildContext, context.BuildContextRequest(conversation_id=conversation, budget_tokens=2000))


def watch(connection: grpc.Channel, conversation: str) -> None:
    """Watches a conversation. A server that stops ends its watches, and they resume after the last event."""
    stub = messages_grpc.MessageServiceStub(connection)
    position, received = "", []
    while not (must_end.is_set() and len(received) >= report["appended"].get(conversation, 0)):
        start = {"position": position} if position else {"after_message_id": 0}
        events_before, ended_by_server = len(received), False
        try:
            for event in stub.WatchConversation(messages.WatchConversationRequest(conversation_id=conversation, without_content=True, **start), timeout=3):
                position = event.position or position
                if event.WhichOneof("event") == "message_appended":
                    received.append(event.message_appended.message_id)
                if must_end.is_set() and len(received) >= report["appended"].get(conversation, 0):
                    break
            else:
                ended_by_server = True
        except grpc.RpcError as error:
            # The timeout of three seconds, or a server that has stopped.
            ended_by_server = error.code() == grpc.StatusCode.UNAVAILABLE
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                with lock:
                    report["failed"].append(f"WatchConversation: {error.code().name}: {error.details()}")
        if ended_by_server and len(received) > events_before:
            with lock:
                report["resumed"] += 1
    with lock:
        # The number of received messages, or False if one is missing, repeated or out of order.
        report["watched"][conversation] = received == list(range(1, len(received) + 1)) and len(received)


def main(addresses: str, config: str, *conversations: str) -> None:
    config = json.loads(Path(config).read_text())
    target = "ipv4:" + addresses
    with_retries, no_retries = channel(target, config), channel(target, without_retries(config))
    workers = [threading.Thread(target=append_and_read, args=((with_retries, no_retries)[index % 2], conversation)) for index, conversation in enumerate(conversations)]
    workers += [threading.Thread(target=watch, args=(with_retries, conversation)) for conversation in conversations[:2]]
    for worker in workers:
        worker.start()
    print("under way", flush=True)
    sys.stdin.read()
    must_end.set()
    for worker in workers:
        worker.join()
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
