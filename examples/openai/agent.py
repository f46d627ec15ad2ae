"""The Agents SDK with a tool, and with a session that is a conversation of the server.

    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=... python agent.py
"""

import asyncio

from agents import Agent, OpenAIConversationsSession, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

# Otherwise the SDK sends traces to its own service.
set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "Sunny."


async def main():
    model = (await AsyncOpenAI().models.list()).data[0].id
    agent = Agent(name="weather", model=model, tools=[get_weather])
    session = OpenAIConversationsSession()
    for question in ("What is the weather in Paris?", "Say hello."):
        result = await Runner.run(agent, question, session=session)
        print(f"{question} {result.final_output}")
    for item in await session.get_items():
        print(item.get("role") or item["type"])
    await session.clear_session()


asyncio.run(main())
