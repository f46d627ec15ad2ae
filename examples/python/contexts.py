"""ContextService: a context within a budget and its manifest, a provider's format, usage, a checkpoint on demand.

Set up as first_session.py says, then: PYTHONPATH=target/python python3 examples/python/contexts.py
"""

import json
import os

import grpc
from google.protobuf import duration_pb2
from anneal.v1 import context_service_pb2 as context, context_service_pb2_grpc as context_grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc
from anneal.v1 import provider_error_pb2 as provider_error


def text_message(role: int, text: str) -> message.NewMessage:
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=text))])


def main() -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        stub = context_grpc.ContextServiceStub(channel)
        conversation_id = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
            conversation.CreateConversationRequest(system_prompt="You answer briefly."), timeout=5).conversation_id
        for n in range(12):
            messages_grpc.MessageServiceStub(channel).AppendMessages(messages.AppendMessagesRequest(
                conversation_id=conversation_id, request_id=f"turn-{n}", messages=[
                    text_message(message.ROLE_USER,
                                 f"When does ferry {n} leave, and from where, if the wind is from the north?"),
                    text_message(message.ROLE_ASSISTANT,
                                 f"Ferry {n} leaves at {n + 6}:30 from berth {n % 4}, whatever the wind.")]), timeout=5)

        question = text_message(message.ROLE_USER, "And the last one?")
        neutral = stub.BuildContext(context.BuildContextRequest(
            conversation_id=conversation_id, current_input=[question], budget_tokens=300), timeout=10)
        assert neutral.total_tokens <= 300
        for entry in neutral.manifest:
            print(f"messages {entry.first_message_id} to {entry.last_message_id}: "
                  f"{context.Representation.Name(entry.representation)}, {context.Reason.Name(entry.reason)}")

        ready = stub.BuildContext(context.BuildContextRequest(
            conversation_id=conversation_id, current_input=[question],
            format=context.FORMAT_ANTHROPIC_MESSAGES), timeout=10)
        body = json.loads(ready.rendered)  # {"system": [...], "messages": [...]}: add model and max_tokens, then send it
        assert body["messages"][-1]["role"] == "user"

        verdict = stub.ClassifyError(provider_error.ClassifyErrorRequest(
            status=400, model="claude-sonnet-4-5", body=b'{"type":"error","error":{"type":"invalid_request_error",'
            b'"message":"prompt is too long: 212345 tokens > 200000 maximum"}}'), timeout=5)
        assert verdict.is_overflow  # then build again with pressure=PRESSURE_TRUNCATE_TOOL_RESULTS, then PRESSURE_COMPACT

        compaction = stub.Compact(context.CompactRequest(
            conversation_id=conversation_id, request_id="compact-1", focus="departure times",
            wait=duration_pb2.Duration(seconds=20)), timeout=30)
        print(f"compaction: {context.CompactOutcome.Name(compaction.outcome)}")
        listed = stub.ListCheckpoints(context.ListCheckpointsRequest(conversation_id=conversation_id), timeout=5)
        for checkpoint in listed.checkpoints:
            print(f"up to message {checkpoint.last_message_id}: {checkpoint.tokens_before} tokens became {checkpoint.tokens_after}")
        usage = stub.GetContextUsage(context.GetContextUsageRequest(conversation_id=conversation_id), timeout=5)
        print(f"{usage.total_tokens} of {usage.window_tokens} tokens; conversation {conversation_id}")


if __name__ == "__main__":
    main()
