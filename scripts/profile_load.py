"""Calls a server a fixed number of times, for scripts/profile.sh.

profile_load.py ADDRESS prepare creates 16 conversations of 50 messages and prints their ids.
profile_load.py ADDRESS append|context CALLS ID... makes CALLS calls in all (rounded down to a
multiple of 16), with one caller for each of the 16 ids: each appends a 400-byte message with a
request id, or builds the context of the whole tail.
"""

import sys
import threading
import uuid

import grpc
from anneal.v1 import context_service_pb2 as context, context_service_pb2_grpc as contexts_grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversations_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc

CALLERS = 16
TAIL_MESSAGES = 50
TEXT = ("The quick brown fox jumps over the lazy dog. " * 9)[:400]
DEADLINE_SECONDS = 60  # per call: callgrind runs one thread at a time, fifty times slower


def numbered_message(number: int) -> message.NewMessage:
    """A message of 400 bytes that begins with its number: of the user if that is even, else of the assistant."""
    role = message.ROLE_ASSISTANT if number % 2 else message.ROLE_USER
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=f"{number}: {TEXT}"[:400]))])


def create_conversation(channel: grpc.Channel) -> str:
    stub = conversations_grpc.ConversationServiceStub(channel)
    # Without the trigger no checkpoint shortens the tail during the measurement.
    policy = conversation.Policy(max_message_count=0)
    return stub.CreateConversation(
        conversation.CreateConversationRequest(policy=policy), timeout=DEADLINE_SECONDS).conversation_id


def append(channel: grpc.Channel, conversation_id: str, count: int) -> None:
    ask = messages.AppendMessagesRequest(
        conversation_id=conversation_id, request_id=str(uuid.uuid4()),
        messages=[numbered_message(number) for number in range(count)])
    messages_grpc.MessageServiceStub(channel).AppendMessages(ask, timeout=DEADLINE_SECONDS)


def build(channel: grpc.Channel, conversation_id: str) -> None:
    contexts_grpc.ContextServiceStub(channel).BuildContext(
        context.BuildContextRequest(conversation_id=conversation_id), timeout=DEADLINE_SECONDS)


def run_caller(channel: grpc.Channel, what: str, count: int, conversation_id: str) -> None:
    for _ in range(count):
        if what == "append":
            append(channel, conversation_id, 1)
        else:
            build(channel, conversation_id)


def prepare(channel: grpc.Channel) -> None:
    for _ in range(CALLERS):
        conversation_id = create_conversation(channel)
        append(channel, conversation_id, TAIL_MESSAGES)
        print(conversation_id)


def main() -> None:
    with grpc.insecure_channel(sys.argv[1]) as channel:
        what = sys.argv[2]
        if what == "prepare":
            prepare(channel)
            return
        count, conversation_ids = int(sys.argv[3]) // CALLERS, sys.argv[4:]
        callers = [threading.Thread(target=run_caller, args=(channel, what, count, conversation_id))
                   for conversation_id in conversation_ids]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()


if __name__ == "__main__":
    main()
