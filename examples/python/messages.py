"""MessageService: idempotent appends, a streamed large message, a read of a byte range, a list, separators, a watch,
messages that are withdrawn, restored and edited.

Set up as first_session.py says, then: PYTHONPATH=target/python python3 examples/python/messages.py
"""

import os
import uuid
from collections.abc import Iterator

import grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc

PIECE = 1024 * 1024  # bytes


def text_message(role: int, text: str) -> message.NewMessage:
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=text))])


def pieces(conversation_id: str, text: str) -> Iterator[messages.AppendLargeMessageRequest]:
    """A header with an empty text, then the text in pieces; cuts may fall inside a character."""
    yield messages.AppendLargeMessageRequest(header=messages.AppendLargeMessageRequest.Header(
        conversation_id=conversation_id, request_id=str(uuid.uuid4()), message=text_message(message.ROLE_USER, "")))
    whole = text.encode()
    for start in range(0, len(whole), PIECE):
        yield messages.AppendLargeMessageRequest(chunk=whole[start:start + PIECE])


def main() -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        stub = messages_grpc.MessageServiceStub(channel)
        conversation_id = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
            conversation.CreateConversationRequest(), timeout=5).conversation_id

        # Streams the conversation's events. With the last event's position, a new watch resumes after it.
        # Without content, because the large message would exceed 4 MiB, the default limit of gRPC clients.
        watch = stub.WatchConversation(messages.WatchConversationRequest(
            conversation_id=conversation_id, after_message_id=0,
            without_content=True), timeout=60)
        assert next(watch).WhichOneof("event") == "started"

        turn = messages.AppendMessagesRequest(
            conversation_id=conversation_id, request_id="turn-1", expected_last_message_id=0,
            messages=[text_message(message.ROLE_USER, "When does the ferry leave?"),
                      text_message(message.ROLE_ASSISTANT, "At 15:30 from berth 4.")])
        first = stub.AppendMessages(turn, timeout=5)
        again = stub.AppendMessages(turn, timeout=5)  # after a lost answer, for example
        assert again.replayed and [m.message_id for m in again.messages] == [m.message_id for m in first.messages] == [1, 2]

        log = "".join(f"{n:6} the ferry is under way\n" for n in range(200_000))
        large = stub.AppendLargeMessage(pieces(conversation_id, log), timeout=60).messages[0]
        tail = stub.GetMessage(messages.GetMessageRequest(
            conversation_id=conversation_id, message_id=large.message_id,
            range=messages.ByteRange(offset=len(log) - 32, length=32)), timeout=5)
        assert log.endswith(tail.text)

        mark = stub.InsertSeparator(messages.InsertSeparatorRequest(
            conversation_id=conversation_id, request_id="new-topic"), timeout=5)
        listed = stub.ListMessages(messages.ListMessagesRequest(
            conversation_id=conversation_id, without_content=True), timeout=5)
        assert [m.message_id for m in listed.messages] == [1, 2, 3] and listed.separators[0].after_message_id == 3
        stub.DeleteSeparator(messages.DeleteSeparatorRequest(
            conversation_id=conversation_id, after_message_id=mark.after_message_id, request_id="same-topic"), timeout=5)

        ids = []
        for event in watch:
            if event.WhichOneof("event") == "message_appended":
                ids.append(event.message_appended.message_id)
            if ids == [1, 2, 3]:
                break

        undone = stub.WithdrawMessages(messages.WithdrawMessagesRequest(
            conversation_id=conversation_id, request_id="undo", message_ids=[2]), timeout=5)
        assert undone.withdrawn_messages == 1
        listed = stub.ListMessages(messages.ListMessagesRequest(
            conversation_id=conversation_id, without_content=True), timeout=5)
        assert [m.message_id for m in listed.messages] == [1, 3]
        redone = stub.RestoreMessages(messages.RestoreMessagesRequest(
            conversation_id=conversation_id, request_id="redo",
            range=messages.IdRange(first_message_id=1, last_message_id=3)), timeout=5)
        assert redone.withdrawn_messages == 0

        changes = []
        for event in watch:
            kind = event.WhichOneof("event")
            if kind in ("messages_withdrawn", "messages_restored"):
                changes.append((kind, [r.first_message_id for r in getattr(event, kind).messages]))
            if len(changes) == 2:
                break
        assert changes == [("messages_withdrawn", [2]), ("messages_restored", [2])]
        watch.cancel()

        edited = stub.EditMessage(messages.EditMessageRequest(
            conversation_id=conversation_id, request_id="edit", message_id=2, expected_version=1,
            message=text_message(message.ROLE_ASSISTANT, "At 15:45 from berth 4.")), timeout=5)
        assert edited.version == 2
        versions = stub.ListMessageVersions(messages.ListMessageVersionsRequest(
            conversation_id=conversation_id, message_id=2), timeout=5).versions
        assert [v.version for v in versions] == [2, 1]
        original = stub.GetMessage(messages.GetMessageRequest(
            conversation_id=conversation_id, message_id=2, version=1), timeout=5).message
        assert original.parts[0].text.text == "At 15:30 from berth 4."
        print(f"messages {ids} appended to {conversation_id}; the large one has {large.tokens.tokens} tokens, estimated")


if __name__ == "__main__":
    main()
