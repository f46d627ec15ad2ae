"""Responses in the background: polled, cancelled, and resumed where a stream broke off.

Prints `left` when the stream has broken off: the model then goes on."""

import time

import openai

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id


def wait_for_end(response):
    while response.status in ("queued", "in_progress"):
        time.sleep(0.02)
        response = client.responses.retrieve(response.id)
    return response


def content(events):
    """The text of the deltas, which may be cut in other places, and the other events."""
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    others = [event for event in events if event.type != "response.output_text.delta"]
    return "".join(deltas), others


def check_poll():
    queued = client.responses.create(model=model, input="Say hello.", background=True)
    assert queued.status == "queued" and queued.background and not queued.output, queued
    ended = wait_for_end(queued)
    assert (ended.status, ended.output_text) == ("completed", "Hello there, friend!"), ended


def check_cancel():
    running = client.responses.create(model=model, input="Talk for ever.", background=True)
    for _ in range(2):
        cancelled = client.responses.cancel(running.id)
        assert cancelled.status == "cancelled" and not cancelled.output, cancelled
    assert client.responses.retrieve(running.id).status == "cancelled"
    ended = client.responses.create(model=model, input="Say hello.", background=True)
    wait_for_end(ended)
    try:
        client.responses.cancel(ended.id)
    except openai.BadRequestError:
        return
    raise AssertionError("a response that has ended can be cancelled")


def check_resume():
    stream = client.responses.create(
        model=model, input="Count slowly.", background=True, stream=True
    )
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    print("left", flush=True)
    response_id = seen[0].response.id
    assert seen[0].response.status in ("queued", "in_progress"), seen[0]
    rest = list(
        client.responses.retrieve(
            response_id, stream=True, starting_after=seen[-1].sequence_number
        )
    )
    assert rest[-1].type == "response.completed", rest[-1]
    numbers = [event.sequence_number for event in seen + rest]
    assert numbers == sorted(set(numbers)), numbers
    text, _ = content(seen + rest)
    assert text == rest[-1].response.output_text, text
    assert client.responses.retrieve(response_id) == rest[-1].response

    # Resumed after each event of the whole stream: no event twice, none missing.
    whole = list(client.responses.retrieve(response_id, stream=True))
    assert content(whole) == content(seen + rest), whole
    for index, event in enumerate(whole):
        resumed = list(
            client.responses.retrieve(
                response_id, stream=True, starting_after=event.sequence_number
            )
        )
        assert content(whole[: index + 1] + resumed) == content(whole), (event, resumed)


check_poll()
check_cancel()
check_resume()
print("done")
