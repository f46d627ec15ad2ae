// The strict reader of streams accepts an answer with reasoning, and those that do not complete.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

async function read(parameters) {
  const stream = client.responses.stream({ model, ...parameters });
  for await (const _ of stream);
  return stream.finalResponse();
}

const response = await read({ input: "Think." });
assert.deepEqual(response.output.map((item) => item.type), ["reasoning", "message"]);
assert.equal(response.output[0].content[0].text, "Let me see.");
assert.equal(response.output_text, "Here it is.");
const again = await read({ input: [{ role: "user", content: "Think." }, ...response.output, { role: "user", content: "Again." }] });
assert.equal(again.status, "completed");
assert.equal((await read({ input: "Stop early." })).status, "incomplete");
assert.equal((await read({ input: "Fail." })).status, "failed");
console.log("done");
