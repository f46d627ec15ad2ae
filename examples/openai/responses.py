"""Responses: an answer, one that continues it, a stream, and an answer whose reader leaves.

    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=... python responses.py
"""

from openai import OpenAI

client = OpenAI()
model = client.models.list().data[0].id

# The server remembers a response, so that the next one needs only what is new.
first = client.responses.create(model=model, input="My name is Alice. Say hello.")
print("first:", first.output_text)
second = client.responses.create(
    model=model, input="What is my name?", previous_response_id=first.id
)
print("second:", second.output_text)

print("stream: ", end="")
for event in client.responses.create(model=model, input="Say hello.", stream=True):
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
print()

# In the background a response goes on without its reader. What was missed comes later, exactly from
# the event on at which the stream broke off.
stream = client.responses.create(
    model=model, input="Count slowly from 1 to 40.", background=True, stream=True
)
text = ""
for event in stream:
    if event.type == "response.created":
        response_id = event.response.id
    if event.type == "response.output_text.delta":
        text += event.delta
        break
stream.close()
for event in client.responses.retrieve(
    response_id, stream=True, starting_after=event.sequence_number
):
    if event.type == "response.output_text.delta":
        text += event.delta
print("resumed:", text)
