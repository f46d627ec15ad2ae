"""ChatService: a turn whose model calls tools. Runs the calls here, and sends all results in the next turn.

Set up as chat.py says. Options that belong to the conversation apply to all of its turns.
PYTHONPATH=target/python python3 examples/python/tools.py "What time is it in Oslo and in Lima?"
"""

import datetime
import json
import os
import sys
import uuid
import zoneinfo

import grpc
from anneal.v1 import chat_options_pb2 as chat_options
from anneal.v1 import chat_service_pb2 as chat, chat_service_pb2_grpc as chat_grpc, message_pb2 as message
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc

MAX_ROUNDS = 8
TIME_IN = chat_options.Tool(
    name="time_in", description="The time of day in a time zone such as Europe/Oslo",
    input_schema=json.dumps({"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}))


def result(call: message.ToolUsePart) -> message.Part:
    """Runs a call. A call that cannot be run has a result, too: without it the conversation cannot go on."""
    try:
        zone = zoneinfo.ZoneInfo(json.loads(call.input)["zone"])
        text, is_error = f"{datetime.datetime.now(zone):%H:%M}", False
    except (ValueError, KeyError, TypeError, OSError) as failed:
        text, is_error = f"no such zone: {failed}", True
    return message.Part(tool_result=message.ToolResultPart(tool_use_id=call.id, text=text, is_error=is_error))


def turn(stub: chat_grpc.ChatServiceStub, request: chat.ChatRequest) -> list[message.ToolUsePart]:
    """Runs a turn and prints its text. Returns the calls of the answer."""
    calls = []
    for response in stub.Chat(request, timeout=300):
        event = response.WhichOneof("event")
        if event == "text_delta":
            print(response.text_delta, end="", flush=True)
        elif event == "tool_call":
            calls.append(response.tool_call)
        elif event == "attempt":
            calls.clear()  # everything received so far is void
    return calls


def main(text: str) -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        conversation_id = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
            conversation.CreateConversationRequest(chat_options=chat_options.ChatOptions(tools=[TIME_IN])),
            timeout=5).conversation_id
        prompt = message.NewMessage(role=message.ROLE_USER, parts=[message.Part(text=message.TextPart(text=text))])
        for _ in range(MAX_ROUNDS):
            calls = turn(chat_grpc.ChatServiceStub(channel), chat.ChatRequest(
                conversation_id=conversation_id, request_id=str(uuid.uuid4()), messages=[prompt],
                model=os.environ.get("ANNEAL_MODEL", "")))
            if not calls:
                print(f"\n\nconversation {conversation_id}")
                return
            for call in calls:
                print(f"-> {call.name} {call.input}")
            prompt = message.NewMessage(role=message.ROLE_TOOL, parts=[result(call) for call in calls])
        raise SystemExit("the model calls tools without end")


if __name__ == "__main__":
    main(*sys.argv[1:])
