"""Conversations: created, changed and deleted; items added, listed in both orders, and deleted."""

import openai

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id


def message(text, role="user"):
    return {"type": "message", "role": role, "content": text}


def check_missing(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except openai.NotFoundError:
        return
    raise AssertionError(f"{arguments} {named} is not missing")


conversation = client.conversations.create(
    metadata={"topic": "demo"}, items=[message(f"Text {number}.") for number in range(20)]
)
assert conversation.object == "conversation" and conversation.metadata == {"topic": "demo"}
assert client.conversations.retrieve(conversation.id) == conversation
updated = client.conversations.update(conversation.id, metadata={"topic": "other"})
assert updated.metadata == {"topic": "other"}, updated

call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
output = {"type": "function_call_output", "call_id": "call_1", "output": "Nothing."}
added = client.conversations.items.create(
    conversation.id, items=[call, output, message("Then this.", "assistant")]
)
assert [item.type for item in added.data] == ["function_call", "function_call_output", "message"]
assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id), added

# Pages of 7, 5 and so on: every item once, in both orders.
for limit in (1, 5, 7, 100):
    ascending = list(client.conversations.items.list(conversation.id, order="asc", limit=limit))
    descending = list(client.conversations.items.list(conversation.id, limit=limit))
    assert len(ascending) == 23 and ascending == descending[::-1], (limit, ascending)
assert [item.content[0].text for item in ascending[:20]] == [f"Text {n}." for n in range(20)]
after = client.conversations.items.list(conversation.id, order="asc", after=ascending[19].id)
assert [item.id for item in after] == [item.id for item in added.data], after

for item in ascending:
    found = client.conversations.items.retrieve(item.id, conversation_id=conversation.id)
    assert found == item, (found, item)
client.conversations.items.delete(ascending[3].id, conversation_id=conversation.id)
check_missing(
    client.conversations.items.retrieve, ascending[3].id, conversation_id=conversation.id
)
left = [item.id for item in client.conversations.items.list(conversation.id, order="asc")]
assert left == [item.id for item in ascending if item.id != ascending[3].id], left

# A turn in the conversation leaves its question and its answer there.
response = client.responses.create(model=model, conversation=conversation.id, input="Say hello.")
assert response.conversation.id == conversation.id, response
newest = client.conversations.items.list(conversation.id, limit=2).data
assert [(item.role, item.content[0].text) for item in newest] == [
    ("assistant", "Hello there, friend!"),
    ("user", "Say hello."),
], newest
assert newest[0].id == response.output[0].id, (newest, response)

deleted = client.conversations.delete(conversation.id)
assert deleted.deleted and deleted.id == conversation.id, deleted
check_missing(client.conversations.retrieve, conversation.id)
print("done")
