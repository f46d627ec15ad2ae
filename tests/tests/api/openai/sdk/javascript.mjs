// The JavaScript client: responses, streams, conversations with their items, the background, chat
// completions, refusals.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

const weather = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

async function collect(iterable) {
  const all = [];
  for await (const one of iterable) all.push(one);
  return all;
}

/** The text of the deltas, which may be cut in other places, and the other events. */
function content(events) {
  const isDelta = (event) => event.type === "response.output_text.delta";
  const text = events.filter(isDelta).map((event) => event.delta).join("");
  return [text, ...events.filter((event) => !isDelta(event))];
}

async function checkCreate() {
  const first = await client.responses.create({ model, input: "My name is Alice. Say hello." });
  assert.equal(first.status, "completed");
  assert.equal(first.output_text, "Hello there, friend!");
  const second = await client.responses.create({ model, input: "What is my name?", previous_response_id: first.id });
  assert.equal(second.output_text, "Your name is Alice.");
  assert.deepEqual((await client.responses.retrieve(second.id)).output, second.output);
  const inputs = await collect(client.responses.inputItems.list(second.id, { order: "asc", limit: 1 }));
  assert.deepEqual(inputs.map((item) => item.content[0].text), ["What is my name?"]);
  const counted = await client.responses.inputTokens.count({ model, input: "Say hello." });
  assert.ok(counted.input_tokens > 0);
  await client.responses.delete(second.id);
  await assert.rejects(client.responses.retrieve(second.id), OpenAI.NotFoundError);
}

async function checkStream() {
  const events = await collect(await client.responses.create({ model, input: "Say hello.", stream: true }));
  assert.equal(events[0].type, "response.created");
  assert.equal(events.at(-1).type, "response.completed");
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  assert.equal(deltas.map((event) => event.delta).join(""), "Hello there, friend!");
  assert.ok(deltas.length > 1);

  const stream = client.responses.stream({ model, input: "What is the weather in Paris?", tools: [weather] });
  const kinds = new Set((await collect(stream)).map((event) => event.type));
  assert.ok(kinds.has("response.function_call_arguments.done"));
  const asked = await stream.finalResponse();
  const [call] = asked.output;
  assert.deepEqual([call.name, call.arguments], ["get_weather", '{"city":"Paris"}']);
  const answered = await client.responses.create({
    model,
    previous_response_id: asked.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "Sunny." }],
  });
  assert.equal(answered.output_text, "The tool returned: Sunny.");
}

async function checkConversations() {
  const message = (text) => ({ type: "message", role: "user", content: text });
  const texts = Array.from({ length: 7 }, (_, number) => `Text ${number}.`);
  const conversation = await client.conversations.create({ items: texts.map(message), metadata: { topic: "demo" } });
  assert.deepEqual(await client.conversations.retrieve(conversation.id), conversation);
  const updated = await client.conversations.update(conversation.id, { metadata: { topic: "other" } });
  assert.deepEqual(updated.metadata, { topic: "other" });
  const list = (order) => collect(client.conversations.items.list(conversation.id, { order, limit: 3 }));
  const ascending = await list("asc");
  assert.deepEqual(ascending.map((item) => item.content[0].text), texts);
  assert.deepEqual(await list("desc"), ascending.toReversed());
  const added = await client.conversations.items.create(conversation.id, { items: [message("One more.")] });
  const path = { conversation_id: conversation.id };
  assert.deepEqual(await client.conversations.items.retrieve(added.last_id, path), added.data[0]);
  await client.conversations.items.delete(added.last_id, path);
  await assert.rejects(client.conversations.items.retrieve(added.last_id, path), OpenAI.NotFoundError);
  const response = await client.responses.create({ model, conversation: conversation.id, input: "Say hello." });
  assert.equal(response.conversation.id, conversation.id);
  assert.equal((await list("asc")).length, 9);
  assert.equal((await client.conversations.delete(conversation.id)).deleted, true);
  await assert.rejects(client.conversations.retrieve(conversation.id), OpenAI.NotFoundError);
}

async function checkBackground() {
  const queued = await client.responses.create({ model, input: "Say hello.", background: true });
  let response = queued;
  while (["queued", "in_progress"].includes(response.status)) response = await client.responses.retrieve(queued.id);
  assert.equal(response.output_text, "Hello there, friend!");
  const whole = await collect(await client.responses.retrieve(queued.id, { stream: true }));
  for (const [index, event] of whole.entries()) {
    const from = { stream: true, starting_after: event.sequence_number };
    const resumed = await collect(await client.responses.retrieve(queued.id, from));
    assert.deepEqual(content([...whole.slice(0, index + 1), ...resumed]), content(whole));
  }
  const running = await client.responses.create({ model, input: "Talk for ever.", background: true });
  assert.equal((await client.responses.cancel(running.id)).status, "cancelled");
}

async function checkChatCompletions() {
  const messages = [{ role: "user", content: "Say hello." }];
  const completion = await client.chat.completions.create({ model, messages });
  assert.equal(completion.choices[0].message.content, "Hello there, friend!");
  const chunks = await collect(await client.chat.completions.create({ model, messages, stream: true }));
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, "Hello there, friend!");
}

async function checkRefusal() {
  const refused = client.responses.create({ model, input: "Say hello.", tools: [{ type: "web_search" }] });
  await assert.rejects(refused, (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.param, error.code], ["tools[0].type", "unsupported_tool"]);
    assert.match(error.requestID, /^req_/);
    return true;
  });
}

await checkCreate();
await checkStream();
await checkConversations();
await checkBackground();
await checkChatCompletions();
await checkRefusal();
console.log("done");
