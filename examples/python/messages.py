"""MessageService: messages appended once however often, a large one streamed, read back whole and in ranges, watched.

As first_session.py: PYTHONPATH=target/python python3 examples/python/messages.py
"""

import os
import uuid
from collections.abc import Iterator

import grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc

PIECE = 1024 * 1024


def said(role: int, text: str) -> message.NewMessage:
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=text))])


def pieces(conversation_id: str, text: str) -> Iterator[messages.AppendLargeMessageRequest]:
    """A header, whose text is empty, then the text; cuts may fall inside a character."""
    yield messages.AppendLargeMessageRequest(header=messages.AppendLargeMessageRequest.Header(
        conversation_id=conversation_id, request_id=str(uuid.uuid4()), message=said(message.ROLE_USER, "")))
    whole = text.encode()
    for start in range(0, len(whole), PIECE):
        yield messages.AppendLargeMessageRequest(chunk=whole[start:start + PIECE])


def main() -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        stub = messages_grpc.MessageServiceStub(channel)
        talk = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
            conversation.CreateConversationRequest(), timeout=5).conversation_id

        # What happens to the conversation, as it happens. The position of the last event is where a new watch goes on.
        watch = stub.WatchConversation(messages.WatchConversationRequest(
            conversation_id=talk, after_message_id=0, without_content=True), timeout=60)  # a client takes 4 MiB at most, unless told
        assert next(watch).WhichOneof("event") == "started"

        turn = messages.AppendMessagesRequest(
            conversation_id=talk, request_id="turn-1", expected_last_message_id=0,
            messages=[said(message.ROLE_USER, "When does the ferry leave?"),
                      said(message.ROLE_ASSISTANT, "At 15:30 from berth 4.")])
        first = stub.AppendMessages(turn, timeout=5)
        again = stub.AppendMessages(turn, timeout=5)  # after a lost answer, for example
        assert again.replayed and [m.message_id for m in again.messages] == [m.message_id for m in first.messages] == [1, 2]

        log = "".join(f"{n:6} the ferry is under way\n" for n in range(200_000))
        large = stub.AppendLargeMessage(pieces(talk, log), timeout=60).messages[0]
        tail = stub.GetMessage(messages.GetMessageRequest(
            conversation_id=talk, message_id=large.message_id,
            range=messages.ByteRange(offset=len(log) - 32, length=32)), timeout=5)
        assert log.endswith(tail.text)

        mark = stub.InsertSeparator(messages.InsertSeparatorRequest(conversation_id=talk, request_id="new-topic"), timeout=5)
        listed = stub.ListMessages(messages.ListMessagesRequest(conversation_id=talk, without_content=True), timeout=5)
        assert [m.message_id for m in listed.messages] == [1, 2, 3] and listed.separators[0].after_message_id == 3
        stub.DeleteSeparator(messages.DeleteSeparatorRequest(
            conversation_id=talk, after_message_id=mark.after_message_id, request_id="same-topic"), timeout=5)

        seen = []
        for event in watch:
            if event.WhichOneof("event") == "message_appended":
                seen.append(event.message_appended.message_id)
            if seen == [1, 2, 3]:
                break
        watch.cancel()
        print(f"messages {seen} appended to {talk}; the large one has {large.tokens.tokens} tokens, estimated")


if __name__ == "__main__":
    main()
