// Responses with the JavaScript client: an answer, one that continues it, and a stream.
//
//   npm ci && OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=... node responses.mjs
import OpenAI from "openai";

const client = new OpenAI();
const model = (await client.models.list()).data[0].id;

const first = await client.responses.create({ model, input: "My name is Alice. Say hello." });
console.log("first:", first.output_text);
const second = await client.responses.create({ model, input: "What is my name?", previous_response_id: first.id });
console.log("second:", second.output_text);

let text = "";
for await (const event of await client.responses.create({ model, input: "Say hello.", stream: true })) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
console.log("stream:", text);
