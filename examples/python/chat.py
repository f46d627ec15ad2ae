"""ChatService: one whole turn. anneal stores the prompt, calls the model, streams and stores the answer.

Set up as first_session.py says. The server's configuration must name a model and its provider.
ANNEAL_MODEL names the model if the server has no [chat] model.
PYTHONPATH=target/python python3 examples/python/chat.py "When does the ferry leave?" [CONVERSATION_ID]
"""

import os
import sys
import time
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2
from anneal.v1 import chat_service_pb2 as chat, chat_service_pb2_grpc as chat_grpc, message_pb2 as message
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc

TRIES = 3


def turn(stub: chat_grpc.ChatServiceStub, request: chat.ChatRequest) -> chat.ChatResponse.Done:
    """Runs a turn and prints the answer as it arrives."""
    for response in stub.Chat(request, timeout=300):
        event = response.WhichOneof("event")
        if event == "text_delta":
            print(response.text_delta, end="", flush=True)
        elif event == "attempt":
            print(f"\n[too long for the model, attempt {response.attempt.number}]", file=sys.stderr)
        elif event == "done":
            return response.done
    raise RuntimeError("a turn ends with done or a status")


def delay(failed: grpc.RpcError) -> float | None:
    """Seconds after which the turn may be tried again; None: a retry does not help.

    The error details contain RetryInfo, also while a turn is still running (TURN_IN_PROGRESS). A broken
    connection has no details.
    """
    packed = dict(failed.trailing_metadata() or ()).get("grpc-status-details-bin")
    for detail in status_pb2.Status.FromString(packed).details if packed else ():
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.ToTimedelta().total_seconds()
    return 1.0 if not packed and failed.code() == grpc.StatusCode.UNAVAILABLE else None


def main(text: str, conversation_id: str = "") -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        if not conversation_id:
            conversation_id = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
                conversation.CreateConversationRequest(system_prompt="You answer briefly."), timeout=5).conversation_id
        prompt = message.NewMessage(role=message.ROLE_USER, parts=[message.Part(text=message.TextPart(text=text))])
        request = chat.ChatRequest(conversation_id=conversation_id, request_id=str(uuid.uuid4()), messages=[prompt],
                                   model=os.environ.get("ANNEAL_MODEL", ""))
        for retries_left in reversed(range(TRIES)):
            try:
                done = turn(chat_grpc.ChatServiceStub(channel), request)
                break
            except grpc.RpcError as failed:  # the same request id stores nothing twice, and replays a stored answer
                wait = delay(failed)
                if wait is None or not retries_left:
                    raise SystemExit(f"{failed.code().name}: {failed.details()}") from failed
                print(f"\n[{failed.details()}: trying again in {wait:g} s]", file=sys.stderr)
                time.sleep(wait)
        print(f"\n\n{done.usage.input_tokens} tokens read, {done.usage.output_tokens} written by {done.model}; "
              f"conversation {conversation_id}")


if __name__ == "__main__":
    main(*sys.argv[1:])
