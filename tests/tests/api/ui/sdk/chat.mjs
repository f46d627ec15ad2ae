// Chat, the class behind `useChat`, with DefaultChatTransport. Two programs, named by the first
// argument:
//
//   turns    two turns, a tool that the client runs, another answer; the chat is loaded again
//   reload   prints `left` in the middle of an answer; once ANNEAL_URL_AFTER can be used, a line of
//            standard input: the page is loaded again, and gets the whole answer there
import assert from "node:assert/strict";
import readline from "node:readline/promises";
import { AbstractChat, DefaultChatTransport, generateId, lastAssistantMessageIsCompleteWithToolCalls } from "ai";

const { ANNEAL_URL, ANNEAL_URL_AFTER, ANNEAL_KEY } = process.env;

/** The state of a page without a framework. */
class Chat extends AbstractChat {
  constructor({ messages = [], ...init }) {
    const state = {
      status: "ready",
      error: undefined,
      messages,
      pushMessage(message) {
        this.messages = [...this.messages, message];
      },
      popMessage() {
        this.messages = this.messages.slice(0, -1);
      },
      replaceMessage(index, message) {
        this.messages = this.messages.with(index, structuredClone(message));
      },
      snapshot: structuredClone,
    };
    super({ ...init, state });
  }
}

const transport = (url, body = {}) =>
  new DefaultChatTransport({
    api: `${url}/api/agents/a/ui`,
    headers: ANNEAL_KEY ? { authorization: `Bearer ${ANNEAL_KEY}` } : {},
    body,
  });

const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

/** The chat is ready: no request has failed. */
function assertReady(chat) {
  assert.equal(chat.error, undefined);
  assert.equal(chat.status, "ready");
}

const programs = {
  async turns() {
    const tools = [
      {
        name: "get_weather",
        description: "The weather in a city.",
        inputSchema: { type: "object", properties: { city: { type: "string" } } },
      },
    ];
    const finished = [];
    const chat = new Chat({
      id: generateId(),
      transport: transport(ANNEAL_URL, { tools }),
      onFinish: ({ finishReason, isAbort, isDisconnect, isError }) => {
        assert.ok(!isAbort && !isDisconnect && !isError);
        finished.push(finishReason);
      },
      onToolCall: ({ toolCall }) => {
        assert.deepEqual(toolCall.input, { city: "Paris" });
        chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: "Sunny." });
      },
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    });
    await chat.sendMessage({ text: "My name is Alice. Say hello." });
    assertReady(chat);
    assert.equal(textOf(chat.messages[1]), "Hello there, friend!");
    await chat.sendMessage({ text: "What is my name?" });
    assertReady(chat);
    assert.equal(textOf(chat.messages[3]), "Your name is Alice.");

    await chat.sendMessage({ text: "What is the weather in Paris?" });
    while (finished.at(-1) !== "stop" || chat.status !== "ready" || chat.messages.length < 6 || !textOf(chat.messages[5])) {
      assert.equal(chat.error, undefined);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.equal(chat.messages.length, 6, "the answer after the tool continues the message");
    const [call] = chat.messages[5].parts.filter((part) => part.type === "tool-get_weather");
    assert.deepEqual([call.state, call.output], ["output-available", "Sunny."]);
    assert.equal(textOf(chat.messages[5]), "The tool returned: Sunny.");
    assert.deepEqual(finished, ["stop", "stop", "tool-calls", "stop"]);

    const before = chat.messages[5].id;
    await chat.regenerate();
    assertReady(chat);
    assert.equal(chat.messages.length, 6);
    assert.notEqual(chat.messages[5].id, before);
    // Nothing is under way: a page that is loaded now resumes nothing.
    const again = new Chat({ id: chat.id, messages: chat.messages, transport: transport(ANNEAL_URL) });
    await again.resumeStream();
    assertReady(again);
    assert.deepEqual(again.messages, chat.messages);
  },

  async reload() {
    const id = generateId();
    const page = new Chat({ id, transport: transport(ANNEAL_URL) });
    const sent = page.sendMessage({ text: "Count slowly." });
    while (page.messages.length < 2 || !textOf(page.messages[1])) {
      assert.notEqual(page.status, "error", String(page.error));
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const question = page.messages[0];
    const answer = page.messages[1].id;
    console.log("left");
    const input = readline.createInterface({ input: process.stdin });
    await new Promise((resolve) => input.once("line", resolve));
    input.close();
    await page.stop();
    await sent;

    const loaded = new Chat({ id, messages: [question], transport: transport(ANNEAL_URL_AFTER) });
    await loaded.resumeStream();
    assertReady(loaded);
    assert.equal(loaded.messages.length, 2);
    assert.equal(loaded.messages[1].id, answer);
    assert.equal(textOf(loaded.messages[1]), "one two three");
    assert.ok(loaded.messages[1].parts.every((part) => part.type !== "text" || part.state === "done"));
    await loaded.sendMessage({ text: "Say hello." });
    assertReady(loaded);
    assert.equal(textOf(loaded.messages[3]), "Hello there, friend!");
  },
};

await programs[process.argv.at(-1)]();
console.log("done");
