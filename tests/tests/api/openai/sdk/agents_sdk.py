"""The Agents SDK: a session in a conversation, runs with a tool, streamed runs, chained runs."""

import asyncio

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, NotFoundError

set_tracing_disabled(True)
calls = []


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    calls.append(city)
    return "Sunny."


def kinds(items):
    return [item.get("role") or item["type"] for item in items]


async def check_session(client, agent):
    session = OpenAIConversationsSession()
    first = await Runner.run(agent, "What is the weather in Paris?", session=session)
    assert first.final_output == "The tool returned: Sunny." and calls == ["Paris"], first
    second = await Runner.run(agent, "Did I ask for Paris?", session=session)
    assert second.final_output == "You said: Did I ask for Paris?", second

    items = await session.get_items()
    turn = ["user", "function_call", "function_call_output", "assistant"]
    assert kinds(items) == turn + ["user", "assistant"], items
    assert kinds(await session.get_items(limit=2)) == ["user", "assistant"]
    await session.add_items([{"role": "user", "content": "One more thing."}])
    popped = await session.pop_item()
    assert popped["content"][0]["text"] == "One more thing.", popped
    assert await session.get_items() == items
    assert (await session.pop_item())["role"] == "assistant"
    assert await session.get_items() == items[:-1]
    conversation = await session._get_session_id()
    assert len((await client.conversations.items.list(conversation)).data) == 5
    await session.clear_session()
    try:
        await client.conversations.retrieve(conversation)
    except NotFoundError:
        pass
    else:
        raise AssertionError("the conversation of a cleared session is still there")
    assert await session.get_items() == []


async def check_streamed_session(agent):
    session = OpenAIConversationsSession()
    result = Runner.run_streamed(agent, "What is the weather in Paris?", session=session)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output", "message_output_created"], names
    assert result.final_output == "The tool returned: Sunny.", result
    assert len(await session.get_items()) == 4


async def check_server_history(client, agent):
    """The server keeps the history: in a named conversation, or by the response before."""
    conversation = await client.conversations.create()
    first = await Runner.run(agent, "My name is Alice.", conversation_id=conversation.id)
    second = await Runner.run(agent, "What is my name?", conversation_id=conversation.id)
    assert second.final_output == "Your name is Alice.", second
    weather = await Runner.run(
        agent, "What is the weather in Paris?", conversation_id=conversation.id
    )
    assert weather.final_output == "The tool returned: Sunny.", weather
    items = (await client.conversations.items.list(conversation.id, order="asc")).data
    assert len(items) == 8, items

    first = await Runner.run(agent, "My name is Bob.", auto_previous_response_id=True)
    second = await Runner.run(
        agent, "What is my name?", previous_response_id=first.last_response_id
    )
    assert second.final_output == "Your name is Bob.", second


async def run():
    client = AsyncOpenAI()
    model = (await client.models.list()).data[0].id
    agent = Agent(name="weather", instructions="Answer briefly.", model=model, tools=[get_weather])
    await check_session(client, agent)
    await check_streamed_session(agent)
    await check_server_history(client, agent)
    completions = Agent(
        name="weather",
        model=OpenAIChatCompletionsModel(model=model, openai_client=client),
        model_settings=ModelSettings(temperature=0.5),
        tools=[get_weather],
    )
    result = await Runner.run(completions, "What is the weather in Paris?")
    assert result.final_output == "The tool returned: Sunny.", result


asyncio.run(run())
print("done")
