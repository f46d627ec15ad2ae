// A chat of the AI SDK with anneal: two turns, another answer, and an answer that is read once more
// after its reader has left. `useChat` does the same in a page.
//
//   npm ci && ANNEAL_URL=http://127.0.0.1:8080 node chat.mjs
//
// ANNEAL_KEY: an API key, where the server wants one. ANNEAL_AGENT: the agent (ai-sdk-example).
// ANNEAL_MODEL: the model, by its name in the server's configuration (the agent's, or the default).
// ANNEAL_QUESTION: a question with a long answer.
import { DefaultChatTransport, generateId, readUIMessageStream } from "ai";

const { ANNEAL_URL = "http://127.0.0.1:8080", ANNEAL_KEY, ANNEAL_AGENT = "ai-sdk-example", ANNEAL_MODEL } = process.env;
const question = process.env.ANNEAL_QUESTION ?? "Count slowly from 1 to 40.";

const transport = new DefaultChatTransport({
  api: `${ANNEAL_URL.replace(/\/$/, "")}/api/agents/${encodeURIComponent(ANNEAL_AGENT)}/ui`,
  headers: ANNEAL_KEY ? { authorization: `Bearer ${ANNEAL_KEY}` } : {},
  body: ANNEAL_MODEL ? { model: ANNEAL_MODEL } : {},
});

const user = (text) => ({ id: generateId(), role: "user", parts: [{ type: "text", text }] });
const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const send = (chatId, messages, more = {}) =>
  transport.sendMessages({ trigger: "submit-message", chatId, messageId: undefined, messages, abortSignal: undefined, ...more });

/** Reads an answer to its end. */
async function read(stream) {
  let message;
  for await (const update of readUIMessageStream({ stream, terminateOnError: true })) message = update;
  return message;
}

// Two turns. The client sends its whole history; the server reads the last message of it.
const chatId = generateId();
const messages = [user("Say hello.")];
messages.push(await read(await send(chatId, messages)));
console.log("first:", textOf(messages[1]));
messages.push(user("Say hello again."));
messages.push(await read(await send(chatId, messages)));
console.log("second:", textOf(messages[3]));

// Another answer to the last question.
const again = await read(await send(chatId, messages.slice(0, 3), { trigger: "regenerate-message", messageId: messages[3].id }));
console.log("another:", textOf(again));

// The reader leaves in the middle of an answer, as a page does that is loaded again.
const longChat = generateId();
const leave = new AbortController();
const reader = (await send(longChat, [user(question)], { abortSignal: leave.signal })).getReader();
let before = "";
while (!before) {
  const { done, value } = await reader.read();
  if (done) break;
  if (value.type === "text-delta") before = value.delta;
}
leave.abort();
await reader.cancel().catch(() => {});
const resumed = await transport.reconnectToStream({ chatId: longChat });
if (resumed === null) {
  console.log("resumed: nothing, the answer was complete before");
} else {
  const whole = textOf(await read(resumed));
  if (!whole.startsWith(before)) throw new Error(`the answer does not begin with ${JSON.stringify(before)}`);
  console.log("resumed:", whole);
}
