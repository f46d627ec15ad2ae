"""ConversationService: create, update, list and delete conversations; find a chat's conversation; start a new one.

Set up as first_session.py says, then: PYTHONPATH=target/python python3 examples/python/conversations.py
"""

import os
import uuid

import grpc
from google.protobuf import field_mask_pb2
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc

USER = f"user-{uuid.uuid4()}"


def main() -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        stub = conversation_grpc.ConversationServiceStub(channel)
        made = stub.CreateConversation(conversation.CreateConversationRequest(
            request_id=str(uuid.uuid4()),  # store it for retries: the same id creates one conversation
            agent_id="ferries", user_id=USER, title="Ferries",
            policy=conversation.Policy(profile="agents", hot_zone_radius=3)), timeout=5)

        # The etag changes with every update. After a concurrent change this update would be ABORTED.
        made.title, made.pinned = "Ferries to the islands", True
        changed = stub.UpdateConversation(conversation.UpdateConversationRequest(
            conversation=made, update_mask=field_mask_pb2.FieldMask(paths=["title", "pinned"]), etag=made.etag), timeout=5)
        assert changed.title == "Ferries to the islands" and changed.etag != made.etag

        # If messages come from a channel, the channel's ids determine their conversation.
        scope = conversation.SessionScope(agent_id="ferries", channel="telegram", chat_type="private", sender_id=USER)
        session = stub.ResolveSession(conversation.ResolveSessionRequest(scope=scope), timeout=5)
        again = stub.ResolveSession(conversation.ResolveSessionRequest(scope=scope), timeout=5)
        assert session.created and not again.created
        assert again.conversation.conversation_id == session.conversation.conversation_id
        rotated = stub.RotateSession(conversation.RotateSessionRequest(scope=scope, request_id=str(uuid.uuid4())), timeout=5)
        assert rotated.conversation.conversation_id != session.conversation.conversation_id

        listed, token = [], ""
        while True:
            page = stub.ListConversations(conversation.ListConversationsRequest(
                user_id=USER, page_size=2, page_token=token), timeout=5)
            listed += page.conversations
            token = page.next_page_token
            if not token:
                break
        for one in listed:
            print(f"{one.conversation_id}  {conversation.ConversationStatus.Name(one.status)}  {one.title or '(no title)'}  "
                  f"{one.message_count} messages, {one.token_total.tokens} tokens  {one.session_key}")

        for one in listed:
            stub.DeleteConversation(conversation.DeleteConversationRequest(conversation_id=one.conversation_id), timeout=5)
        try:
            stub.GetConversation(conversation.GetConversationRequest(conversation_id=made.conversation_id), timeout=5)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND
        else:
            raise AssertionError("the conversation is still there")
        print(f"{len(listed)} conversations made, listed and deleted")


if __name__ == "__main__":
    main()
