"""Stores conversations with one library, for the scenario `peers` of anneal-bench.

    peers.py anneal | openai | adk | langgraph

Reads commands from standard input, one a line, and answers each with a line of JSON:

    append CALLERS MESSAGES   each caller appends messages to a new conversation, one after the other:
                              the seconds that this took
    grow LENGTH               one conversation, always the same, grows to this number of messages: null
    read TIMES                that conversation is read completely, one time after the other: the
                              milliseconds of each

A message has 400 bytes of prose; users and assistants alternate. PostgreSQL is found by the variables of
libpq (PGHOST and so on), anneal's server by ANNEAL_ADDRESS and ANNEAL_AUTHORIZATION. Each library is
used as its documentation says, with as many connections to PostgreSQL as there may be callers. Only the
library that is measured is imported.
"""

import asyncio
import itertools
import json
import os
import pathlib
import sys
import time
import uuid

CONNECTIONS = 16
PROSE = (pathlib.Path(__file__).parents[3] / "LICENSE").read_text(encoding="ascii")


def messages(first, count):
    """Whether a message is the user's, and its text; the message with the number `first` comes first."""
    starts = [number * 97 % (len(PROSE) - 400) for number in range(first, first + count)]
    return [((first + place) % 2 == 0, PROSE[start : start + 400]) for place, start in enumerate(starts)]


class Anneal:
    async def open(self):
        import grpc
        from anneal.v1 import context_service_pb2, context_service_pb2_grpc, conversation_service_pb2
        from anneal.v1 import conversation_service_pb2_grpc, message_pb2, message_service_pb2, message_service_pb2_grpc

        self.metadata = [("authorization", os.environ["ANNEAL_AUTHORIZATION"])]
        channel = grpc.aio.insecure_channel(os.environ["ANNEAL_ADDRESS"], [("grpc.max_receive_message_length", -1)])
        self.contexts = context_service_pb2_grpc.ContextServiceStub(channel)
        self.conversations = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        self.appends = message_service_pb2_grpc.MessageServiceStub(channel)
        self.conversation, self.context = conversation_service_pb2, context_service_pb2
        self.message, self.append_request = message_pb2, message_service_pb2.AppendMessagesRequest

    async def start(self):
        # Never compacted: like the others, a context is the whole conversation.
        policy = self.conversation.Policy(max_message_count=0)
        request = self.conversation.CreateConversationRequest(policy=policy)
        return (await self.conversations.CreateConversation(request, metadata=self.metadata)).conversation_id

    async def append(self, conversation, new):
        kinds = self.message
        parsed = [
            kinds.NewMessage(
                role=kinds.ROLE_USER if is_user else kinds.ROLE_ASSISTANT,
                parts=[kinds.Part(text=kinds.TextPart(text=text))],
            )
            for is_user, text in new
        ]
        for start in range(0, len(parsed), 100):
            request = self.append_request(
                conversation_id=conversation, request_id=str(uuid.uuid4()), messages=parsed[start : start + 100]
            )
            await self.appends.AppendMessages(request, metadata=self.metadata)

    async def read(self, conversation):
        request = self.context.BuildContextRequest(conversation_id=conversation)
        return len((await self.contexts.BuildContext(request, metadata=self.metadata)).messages)


class OpenAi:
    async def open(self):
        from agents.extensions.memory import SQLAlchemySession
        from sqlalchemy.ext.asyncio import create_async_engine

        self.engine = create_async_engine("postgresql+asyncpg://", pool_size=CONNECTIONS, max_overflow=0)
        self.session = SQLAlchemySession
        await SQLAlchemySession("makes the tables", engine=self.engine, create_tables=True).get_items()

    async def start(self):
        return self.session(str(uuid.uuid4()), engine=self.engine)

    async def append(self, session, new):
        await session.add_items([{"role": "user" if is_user else "assistant", "content": text} for is_user, text in new])

    async def read(self, session):
        return len(await session.get_items())


class Adk:
    async def open(self):
        from google.adk.events import Event
        from google.adk.sessions import DatabaseSessionService
        from google.genai import types

        self.service = DatabaseSessionService("postgresql+asyncpg://", pool_size=CONNECTIONS, max_overflow=0)
        self.event, self.types = Event, types

    async def start(self):
        return await self.service.create_session(app_name="bench", user_id=str(uuid.uuid4()))

    async def append(self, session, new):
        for is_user, text in new:
            content = self.types.Content(role="user" if is_user else "model", parts=[self.types.Part(text=text)])
            event = self.event(author="user" if is_user else "agent", invocation_id="1", content=content)
            await self.service.append_event(session, event)

    async def read(self, session):
        names = {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}
        return len((await self.service.get_session(**names)).events)


class LangGraph:
    async def open(self):
        from langchain_core.messages import AIMessage, HumanMessage
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from langgraph.graph import START, MessagesState, StateGraph
        from psycopg import AsyncConnection
        from psycopg.rows import dict_row

        builder = StateGraph(MessagesState)
        builder.add_node("model", lambda state: {})
        builder.add_edge(START, "model")
        # A saver does one thing at a time, even with a pool: one for each connection.
        savers = []
        for _ in range(CONNECTIONS):
            connection = await AsyncConnection.connect(autocommit=True, prepare_threshold=0, row_factory=dict_row)
            savers.append(AsyncPostgresSaver(connection))
        await savers[0].setup()
        self.graphs = itertools.cycle([builder.compile(checkpointer=saver) for saver in savers])
        self.message = {True: HumanMessage, False: AIMessage}

    async def start(self):
        return next(self.graphs), {"configurable": {"thread_id": str(uuid.uuid4())}}

    async def append(self, thread, new):
        graph, config = thread
        await graph.aupdate_state(config, {"messages": [self.message[is_user](text) for is_user, text in new]}, "model")

    async def read(self, thread):
        graph, config = thread
        return len((await graph.aget_state(config)).values["messages"])


async def append(library, callers, count):
    async def call(conversation):
        for message in messages(0, count):
            await library.append(conversation, [message])

    conversations = [await library.start() for _ in range(callers)]
    before = time.perf_counter()
    await asyncio.gather(*map(call, conversations))
    seconds = time.perf_counter() - before
    assert await library.read(conversations[0]) == count
    return seconds


async def read(library, conversation, length, times):
    milliseconds = []
    for _ in range(times):
        before = time.perf_counter()
        found = await library.read(conversation)
        milliseconds.append((time.perf_counter() - before) * 1000)
        assert found == length, f"{found} of {length} messages were read"
    return milliseconds


async def main(name):
    library = {"anneal": Anneal, "openai": OpenAi, "adk": Adk, "langgraph": LangGraph}[name]()
    await library.open()
    conversation, length = await library.start(), 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        answer = None
        if command == "append":
            answer = await append(library, *numbers)
        elif command == "grow":
            await library.append(conversation, messages(length, numbers[0] - length))
            length = numbers[0]
        elif command == "read":
            answer = await read(library, conversation, length, *numbers)
        else:
            sys.exit(f"peers.py: there is no command {command}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
