"""Calls a server a fixed number of times, for scripts/profile.sh.

profile_load.py ADDRESS prepare prints the ids of 16 conversations of 50 messages. profile_load.py ADDRESS append|context CALLS
ID... calls with one caller for each of them: appends of one 400-byte message with a request id, or contexts of the whole tail.
"""

import sys
import threading
import uuid

import grpc
from anneal.v1 import context_service_pb2 as context, context_service_pb2_grpc as contexts_grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversations_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc

CALLERS = 16
TAIL = 50
TEXT = ("The quick brown fox jumps over the lazy dog. " * 9)[:400]
SECONDS = 60  # callgrind runs one thread at a time, fifty times slower


def said(number: int) -> message.NewMessage:
    """What a user says, or the assistant answers: by turns, never the same twice."""
    role = message.ROLE_ASSISTANT if number % 2 else message.ROLE_USER
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=f"{number}: {TEXT}"[:400]))])


def begun(channel: grpc.Channel) -> str:
    stub = conversations_grpc.ConversationServiceStub(channel)
    # No checkpoint shortens the tail while it is measured.
    policy = conversation.Policy(max_message_count=0)
    return stub.CreateConversation(
        conversation.CreateConversationRequest(policy=policy), timeout=SECONDS).conversation_id


def append(channel: grpc.Channel, talk: str, count: int) -> None:
    ask = messages.AppendMessagesRequest(
        conversation_id=talk, request_id=str(uuid.uuid4()), messages=[said(number) for number in range(count)])
    messages_grpc.MessageServiceStub(channel).AppendMessages(ask, timeout=SECONDS)


def build(channel: grpc.Channel, talk: str) -> None:
    contexts_grpc.ContextServiceStub(channel).BuildContext(
        context.BuildContextRequest(conversation_id=talk), timeout=SECONDS)


def calls(channel: grpc.Channel, what: str, count: int, talk: str) -> None:
    for _ in range(count):
        if what == "append":
            append(channel, talk, 1)
        else:
            build(channel, talk)


def prepare(channel: grpc.Channel) -> None:
    for _ in range(CALLERS):
        talk = begun(channel)
        append(channel, talk, TAIL)
        print(talk)


def main() -> None:
    with grpc.insecure_channel(sys.argv[1]) as channel:
        what = sys.argv[2]
        if what == "prepare":
            prepare(channel)
            return
        count, talks = int(sys.argv[3]) // CALLERS, sys.argv[4:]
        callers = [threading.Thread(target=calls, args=(channel, what, count, talk)) for talk in talks]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()


if __name__ == "__main__":
    main()
