"""The strict reader of streams accepts an answer with reasoning; the item can be sent back."""

import openai

client = openai.OpenAI(max_retries=0)
model = client.models.list().data[0].id


def read(text_or_items):
    with client.responses.stream(model=model, input=text_or_items) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


response = read("Think.")
assert [item.type for item in response.output] == ["reasoning", "message"], response
assert response.output[0].content[0].text == "Let me see.", response
assert response.output_text == "Here it is.", response
items = [item.to_dict() for item in response.output]
assert client.responses.retrieve(response.id).output[0] == response.output[0]
again = read([{"role": "user", "content": "Think."}, *items, {"role": "user", "content": "Again."}])
assert again.status == "completed", again
print("done")
