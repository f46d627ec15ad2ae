"""Chat completions: plain, streamed, with tools, and in a conversation that a header names."""

import openai

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def user(text):
    return {"role": "user", "content": text}


def check_plain():
    completion = client.chat.completions.create(model=model, messages=[user("Say hello.")])
    (choice,) = completion.choices
    assert (completion.object, completion.model) == ("chat.completion", model), completion
    assert (choice.finish_reason, choice.message.content) == ("stop", "Hello there, friend!")
    assert completion.usage.total_tokens > 0, completion


def check_stream():
    stream = client.chat.completions.create(
        model=model,
        messages=[user("Say hello.")],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello there, friend!", text
    assert chunks[-1].usage.total_tokens > 0 and not chunks[-1].choices, chunks[-1]
    with client.chat.completions.stream(model=model, messages=[user("Say hello.")]) as helper:
        completion = helper.until_done().get_final_completion()
    assert completion.choices[0].message.content == "Hello there, friend!", completion


def check_tools():
    messages = [user("What is the weather in Paris?")]
    asked = client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    message = asked.choices[0].message
    assert asked.choices[0].finish_reason == "tool_calls", asked
    (call,) = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Paris"}')
    with client.chat.completions.stream(
        model=model, messages=messages, tools=[WEATHER]
    ) as helper:
        streamed = helper.until_done().get_final_completion().choices[0].message.tool_calls
    assert streamed[0].function.arguments == call.function.arguments, streamed
    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}
    answered = client.chat.completions.create(
        model=model, messages=messages + [message, result], tools=[WEATHER]
    )
    assert answered.choices[0].message.content == "The tool returned: Sunny.", answered


def check_conversation():
    """What is new is kept, so that the conversation has every message once."""
    messages = [user("My name is Alice.")]
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=messages, store=True
    )
    conversation = raw.headers["anneal-conversation"]
    messages.append(raw.parse().choices[0].message.to_dict())
    messages.append(user("What is my name?"))
    headers = {"anneal-conversation": conversation}
    answer = client.chat.completions.create(model=model, messages=messages, extra_headers=headers)
    assert answer.choices[0].message.content == "Your name is Alice.", answer
    items = client.conversations.items.list(conversation, order="asc")
    texts = [item.content[0].text for item in items]
    assert texts == [
        "My name is Alice.",
        "You said: My name is Alice.",
        "What is my name?",
        "Your name is Alice.",
    ], texts


check_plain()
check_stream()
check_tools()
check_conversation()
print("done")
