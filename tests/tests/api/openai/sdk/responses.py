"""Responses with the synchronous client: plain, chained, streamed, parsed, with a tool, refused."""

import openai
from pydantic import BaseModel

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Person(BaseModel):
    name: str
    age: int


def check_plain_and_chain():
    first = client.responses.create(
        model=model, input="My name is Alice. Say hello.", metadata={"case": "plain"}
    )
    assert (first.object, first.status, first.model) == ("response", "completed", model), first
    assert first.output_text == "Hello there, friend!", first
    assert first.metadata == {"case": "plain"} and first.store, first
    usage = first.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0, usage

    second = client.responses.create(
        model=model, input="What is my name?", previous_response_id=first.id
    )
    assert second.output_text == "Your name is Alice.", second
    assert second.previous_response_id == first.id, second

    # The input of a response is its own, without that of the responses before it.
    inputs = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.content[0].text for item in inputs] == ["What is my name?"], inputs
    assert client.responses.retrieve(second.id) == second

    client.responses.delete(second.id)
    for gone in (client.responses.retrieve, client.responses.delete):
        try:
            gone(second.id)
        except openai.NotFoundError as refused:
            assert refused.type == "invalid_request_error", refused
        else:
            raise AssertionError(f"{second.id} is still there")
    assert client.responses.retrieve(first.id).output_text == first.output_text


def check_input_pages():
    texts = [f"Text {number}." for number in range(5)] + ["Say hello."]
    items = [{"role": "user", "content": text} for text in texts]
    response = client.responses.create(model=model, input=items)
    for order, expected in (("asc", texts), ("desc", texts[::-1])):
        page = client.responses.input_items.list(response.id, order=order, limit=2)
        assert len(page.data) == 2 and page.has_more, page
        listed = [item.content[0].text for item in page]
        assert listed == expected, listed


def check_not_stored():
    response = client.responses.create(model=model, input="Say hello.", store=False)
    assert response.output_text == "Hello there, friend!" and response.store is False, response
    try:
        client.responses.retrieve(response.id)
    except openai.NotFoundError:
        return
    raise AssertionError("a response that is not stored can be retrieved")


def check_stream():
    events = list(client.responses.create(model=model, input="Say hello.", stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers)), numbers
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "Hello there, friend!" and len(deltas) > 1, deltas
    assert client.responses.retrieve(events[-1].response.id) == events[-1].response


def check_stream_helper():
    """The helper is strict about the order of events, and about what they say of their items."""
    with client.responses.stream(model=model, input="Say hello.") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == "Hello there, friend!", final
    with client.responses.stream(
        model=model, input="What is the weather in Paris?", tools=[WEATHER]
    ) as stream:
        kinds = [event.type for event in stream]
        call = stream.get_final_response().output[0]
    assert "response.function_call_arguments.done" in kinds, kinds
    assert (call.name, call.arguments) == ("get_weather", '{"city":"Paris"}'), call
    with client.responses.stream(response_id=final.id) as replay:
        assert replay.get_final_response().output_text == final.output_text


def check_parse():
    response = client.responses.parse(model=model, input="Who is it?", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36), response


def check_tool():
    question = "What is the weather in Paris?"
    asked = client.responses.create(model=model, input=question, tools=[WEATHER])
    (call,) = asked.output
    assert (call.type, call.name, call.arguments) == (
        "function_call",
        "get_weather",
        '{"city":"Paris"}',
    ), call
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    answered = client.responses.create(
        model=model, previous_response_id=asked.id, input=[output], tools=[WEATHER]
    )
    assert answered.output_text == "The tool returned: Sunny.", answered
    # The same without the server's memory: the client sends its own copy of what came.
    history = [{"role": "user", "content": question}, call.to_dict(), output]
    again = client.responses.create(model=model, input=history, tools=[WEATHER], store=False)
    assert again.output_text == answered.output_text, again


def check_count():
    counted = client.responses.input_tokens.count(model=model, input="Say hello.")
    assert counted.object == "response.input_tokens" and counted.input_tokens > 0, counted


def check_refusals():
    refusals = [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_tool"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"model": "unknown"}, "model", "model_not_found"),
    ]
    for parameters, param, code in refusals:
        try:
            client.responses.create(**{"model": model, "input": "Say hello.", **parameters})
        except (openai.BadRequestError, openai.NotFoundError) as refused:
            assert (refused.param, refused.code) == (param, code), refused
            assert refused.type == "invalid_request_error", refused
            assert refused.request_id.startswith("req_"), refused.request_id
        else:
            raise AssertionError(f"{parameters} is accepted")
    try:
        client.with_options(api_key="wrong").models.list()
    except openai.AuthenticationError as refused:
        assert refused.code == "invalid_api_key", refused
    else:
        raise AssertionError("a wrong key is accepted")


check_plain_and_chain()
check_input_pages()
check_not_stored()
check_stream()
check_stream_helper()
check_parse()
check_tool()
check_count()
check_refusals()
print("done")
