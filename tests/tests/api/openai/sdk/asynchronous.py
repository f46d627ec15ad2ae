"""The asynchronous client: responses side by side, a stream, pages of items, chat completions."""

import asyncio

import openai


async def run():
    client = openai.AsyncOpenAI(max_retries=0)
    model = (await client.models.list()).data[0].id

    names = ["Alice", "Bob", "Carla", "David"]
    firsts = await asyncio.gather(
        *(client.responses.create(model=model, input=f"My name is {name}.") for name in names)
    )
    seconds = await asyncio.gather(
        *(
            client.responses.create(
                model=model, input="What is my name?", previous_response_id=first.id
            )
            for first in firsts
        )
    )
    texts = [second.output_text for second in seconds]
    assert texts == [f"Your name is {name}." for name in names], texts

    # Two responses that continue the same one do not see each other.
    fork = await client.responses.create(
        model=model, input="What did I ask?", previous_response_id=firsts[0].id
    )
    assert fork.output_text == "You said: What did I ask?", fork

    text = ""
    async for event in await client.responses.create(model=model, input="Say hello.", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == "Hello there, friend!", text

    conversation = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": f"Text {number}."} for number in range(5)]
    )
    listed = [
        item.content[0].text
        async for item in client.conversations.items.list(conversation.id, order="asc", limit=2)
    ]
    assert listed == [f"Text {number}." for number in range(5)], listed

    chunks = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Say hello."}], stream=True
    )
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])
    assert text == "Hello there, friend!", text


asyncio.run(run())
print("done")
