"""One turn with a model: build the context for OpenAI's chat completions, send it, shorten it if it is too long.

Set up as first_session.py says, and set a model's address: OPENAI_BASE_URL (https://api.openai.com/v1, or
a compatible server), OPENAI_API_KEY if the server needs one, and OPENAI_MODEL.
PYTHONPATH=target/python python3 examples/python/model_call.py "When does the ferry leave?" [CONVERSATION_ID]
"""

import json
import os
import sys
import urllib.error
import urllib.request
import uuid

import grpc
from anneal.v1 import context_service_pb2 as context, context_service_pb2_grpc as context_grpc
from anneal.v1 import conversation_service_pb2 as conversation, conversation_service_pb2_grpc as conversation_grpc
from anneal.v1 import message_pb2 as message, message_service_pb2 as messages, message_service_pb2_grpc as messages_grpc
from anneal.v1 import provider_error_pb2 as provider_error, usage_pb2 as usage

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
# The steps to try, in this order, while the model refuses the context as too long.
PRESSURES = [context.PRESSURE_UNSPECIFIED, context.PRESSURE_TRUNCATE_TOOL_RESULTS, context.PRESSURE_COMPACT]


def text_message(role: int, text: str) -> message.NewMessage:
    return message.NewMessage(role=role, parts=[message.Part(text=message.TextPart(text=text))])


def call(request: dict) -> tuple[int, bytes]:
    """Calls the provider; returns status and body."""
    post = urllib.request.Request(os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions",
                                  data=json.dumps(request).encode(), headers={"Content-Type": "application/json"})
    if key := os.environ.get("OPENAI_API_KEY"):
        post.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(post, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def answer(contexts: context_grpc.ContextServiceStub, conversation_id: str) -> str:
    """Calls the model with the conversation's context; returns its answer."""
    for pressure in PRESSURES:
        built = contexts.BuildContext(context.BuildContextRequest(
            conversation_id=conversation_id, format=context.FORMAT_OPENAI_CHAT, pressure=pressure, model=MODEL), timeout=10)
        status, body = call({"model": MODEL} | json.loads(built.rendered))
        verdict = contexts.ClassifyError(provider_error.ClassifyErrorRequest(
            status=status, body=body, model=MODEL), timeout=5)
        if verdict.kind == provider_error.OVERFLOW_KIND_NOT_OVERFLOW and status == 200:
            break
        if not verdict.is_overflow:
            raise SystemExit(f"the model failed: {status} {provider_error.OverflowKind.Name(verdict.kind)} ({verdict.rule})")
        print(f"a context of {built.total_tokens} tokens is too long for {MODEL}", file=sys.stderr)
    else:
        raise SystemExit("the context is too long for the model, however short it was made")
    completion = json.loads(body)
    billed = completion["usage"]
    contexts.ReportUsage(usage.ReportUsageRequest(  # calibrates the counts of this model, and detects cold caches
        conversation_id=conversation_id, request_id=completion["id"], model=MODEL, input_tokens=billed["prompt_tokens"],
        cached_tokens=(billed.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        output_tokens=billed["completion_tokens"], context_tokens=built.total_tokens,
        expected_cached_tokens=built.expected_cached_tokens), timeout=5)
    return completion["choices"][0]["message"]["content"]


def main(text: str, conversation_id: str = "") -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        if not conversation_id:
            conversation_id = conversation_grpc.ConversationServiceStub(channel).CreateConversation(
                conversation.CreateConversationRequest(model=MODEL, policy=conversation.Policy(profile="agents"),
                                                       system_prompt="You answer briefly."), timeout=5).conversation_id
        append = messages_grpc.MessageServiceStub(channel).AppendMessages
        turn_id = str(uuid.uuid4())  # store it for retries: the same id stores nothing twice
        append(messages.AppendMessagesRequest(conversation_id=conversation_id, request_id=f"{turn_id} asked",
                                              messages=[text_message(message.ROLE_USER, text)]), timeout=5)
        reply = answer(context_grpc.ContextServiceStub(channel), conversation_id)
        append(messages.AppendMessagesRequest(conversation_id=conversation_id, request_id=f"{turn_id} answered",
                                              messages=[text_message(message.ROLE_ASSISTANT, reply)]), timeout=5)
        print(f"{reply}\n\nconversation {conversation_id}")


if __name__ == "__main__":
    main(*sys.argv[1:])
