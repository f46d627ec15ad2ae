"""A first session: create a conversation, append to it, build the context for the next model call.

Set up, in a virtual environment: pip install -r examples/python/requirements.txt && examples/python/generate.sh
Then, while `anneal dev` runs: PYTHONPATH=target/python python3 examples/python/first_session.py
"""

import os
import sys

import grpc
from anneal.v1 import context_service_pb2 as context, context_service_pb2_grpc as context_grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc


def text_message(role: int, text: str) -> message.NewMessage:
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=text))])


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        created = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
            conversation.CreateConversationRequest(title="First session", system_prompt="You answer briefly."), timeout=5)
        messages_grpc.MessageServiceStub(channel).AppendMessages(messages.AppendMessagesRequest(
            conversation_id=created.conversation_id, request_id="turn-1",  # a retry with this id stores nothing twice
            messages=[text_message(message.ROLE_USER, "When does the ferry leave?"),
                      text_message(message.ROLE_ASSISTANT, "At 15:30 from berth 4.")]), timeout=5)
        built = context_grpc.ContextServiceStub(channel).BuildContext(context.BuildContextRequest(
            conversation_id=created.conversation_id, budget_tokens=8000,
            current_input=[text_message(message.ROLE_USER, "And the one after that?")]), timeout=5)
        for sent in built.messages:
            print(f"{message.Role.Name(sent.role):15} {sent.tokens:4}  {sent.parts[0].text.text}")
        print(f"{built.total_tokens} tokens; conversation {created.conversation_id}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051"))
