// A back end for browsers. It has the credential and knows its users; anneal has the conversations.
//
//   node backend.ts         serves http://127.0.0.1:8000; PORT chooses another port

import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { callAnneal, getSession, sendTurn, type Session, type Turn } from "./anneal-client.ts";

const FILES: Record<string, [name: string, mediaType: string]> = {
  "/": ["index.html", "text/html"],
  "/turn-events.mjs": ["turn-events.mjs", "text/javascript"],
};
const MAX_BODY_BYTES = 1_000_000;

/** The user of this request. Your login belongs here. */
function userOf(_request: IncomingMessage): string {
  return "demo";
}

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = request.url ?? "/";
  const file = FILES[path];
  if (request.method === "GET" && file) {
    const body = await readFile(new URL(`../browser/${file[0]}`, import.meta.url));
    answer(response, 200, file[1], body);
  } else if (request.method === "GET" && path === "/sessions") {
    await relay(await callAnneal(`sessions?userId=${encodeURIComponent(userOf(request))}`), response);
  } else if (request.method === "GET" && path.startsWith("/sessions/")) {
    const session = decodeURIComponent(path.slice("/sessions/".length));
    if (await isOwner(request, session)) await relay(await getSession(session), response);
    else refuse(response, 404, "NOT_FOUND");
  } else if (request.method === "POST" && path === "/chat") {
    await relayTurn(request, response);
  } else {
    refuse(response, 404, "NOT_FOUND");
  }
}

/** Starts a turn, or continues it after Last-Event-ID. Relays the events as they are. */
async function relayTurn(request: IncomingMessage, response: ServerResponse): Promise<void> {
  // A form of another page cannot send JSON, so that page cannot act for this user.
  if (request.headers["content-type"] !== "application/json") return refuse(response, 415, "NOT_JSON");
  const asked = await readJson(request);
  if (!asked) return refuse(response, 413, "TOO_LARGE");
  const lastEventId = request.headers["last-event-id"]?.toString();
  if (asked.sessionId && !(await isOwner(request, asked.sessionId))) return refuse(response, 404, "NOT_FOUND");
  if (lastEventId && !asked.sessionId) return refuse(response, 400, "SESSION_MISSING");
  const turn: Turn = {
    message: asked.message,
    // With the user's name, so that nobody can repeat the request of another user.
    requestId: `${userOf(request)}:${asked.requestId}`,
    userId: userOf(request),
    sessionId: asked.sessionId,
  };
  await relay(await sendTurn(turn, lastEventId), response);
}

async function isOwner(request: IncomingMessage, session: string): Promise<boolean> {
  const found = await getSession(session, 1);
  return found.ok && ((await found.json()) as Session).userId === userOf(request);
}

/** Relays an answer of anneal piece by piece. */
async function relay(from: Response, to: ServerResponse): Promise<void> {
  const mediaType = from.headers.get("content-type") ?? "text/plain";
  to.writeHead(from.status, { "Content-Type": mediaType });
  to.flushHeaders();
  const reader = from.body?.getReader();
  to.on("close", () => void reader?.cancel().catch(() => undefined));
  while (reader) {
    const piece = await reader.read();
    if (piece.done) break;
    to.write(piece.value);
  }
  to.end();
}

/** Reads the body of a request; undefined if it is too large. */
async function readJson(request: IncomingMessage): Promise<Turn | undefined> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request) {
    bytes += piece.length;
    if (bytes > MAX_BODY_BYTES) return undefined;
    pieces.push(piece);
  }
  return JSON.parse(Buffer.concat(pieces).toString()) as Turn;
}

function refuse(response: ServerResponse, status: number, reason: string, more: object = {}): void {
  const problem = { status, reason, detail: "", ...more };
  answer(response, status, "application/problem+json", JSON.stringify(problem));
}

function answer(response: ServerResponse, status: number, mediaType: string, body: string | Buffer): void {
  response.writeHead(status, { "Content-Type": mediaType }).end(body);
}

const server = createServer((request, response) => {
  serve(request, response).catch(() => {
    // If anneal broke off in the middle of an answer, so does this: the browser comes back.
    if (response.headersSent) response.destroy();
    else refuse(response, 503, "ANNEAL_UNREACHABLE", { retryAfterMs: 1000 });
  });
});
server.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
