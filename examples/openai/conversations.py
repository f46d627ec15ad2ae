"""A conversation: its items in pages, a turn in it, and a chat completion that continues it.

    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=... python conversations.py
"""

from openai import OpenAI

client = OpenAI()
model = client.models.list().data[0].id

conversation = client.conversations.create(
    items=[{"type": "message", "role": "user", "content": "My name is Alice."}],
    metadata={"topic": "demo"},
)
response = client.responses.create(
    model=model, conversation=conversation.id, input="What is my name?"
)
print("answer:", response.output_text)

# The same conversation, by the older API. Only what is new is stored.
completion = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "What is my name?"},
              {"role": "assistant", "content": response.output_text},
              {"role": "user", "content": "Say hello."}],
    extra_headers={"anneal-conversation": conversation.id},
)
print("completion:", completion.choices[0].message.content)

for item in client.conversations.items.list(conversation.id, order="asc", limit=2):
    print(f"{item.role}: {item.content[0].text}")
