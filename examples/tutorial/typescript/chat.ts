// Sends one message, and prints the answer as it arrives.
//
//   node chat.ts "What is a race?"            begins a session
//   node chat.ts "And a deadlock?" SESSION    continues it
//   node chat.ts --history SESSION            prints it

import { randomUUID } from "node:crypto";

import { turnEvents } from "../browser/turn-events.mjs";
import { getSession, sendTurn, type Session, type Turn } from "./anneal-client.ts";

async function printTurn(message: string, sessionId?: string): Promise<void> {
  const turn: Turn = { message, requestId: randomUUID(), sessionId };
  for await (const event of turnEvents((lastEventId) => sendTurn(turn, lastEventId))) {
    switch (event.type) {
      case "text":
        process.stdout.write(event.text ?? "");
        break;
      case "attempt":
        console.log("\n[the answer begins again]");
        break;
      case "done":
        console.log(`\nsession ${event.sessionId}`);
        break;
      case "error":
        throw new Error(`${event.problem?.reason}: ${event.problem?.detail}`);
    }
  }
}

async function printHistory(sessionId: string): Promise<void> {
  const response = await getSession(sessionId);
  if (!response.ok) throw new Error(await response.text());
  const session = (await response.json()) as Session;
  for (const { role, content } of session.messages ?? []) {
    const texts = content.filter((block) => block.type === "text").map((block) => block.text);
    console.log(`${role}: ${texts.join(" ")}`);
  }
}

const [first, second] = process.argv.slice(2);
if (first === "--history" && second) {
  await printHistory(second);
} else if (first) {
  await printTurn(first, second);
} else {
  throw new Error("usage: node chat.ts MESSAGE [SESSION] | --history SESSION");
}
