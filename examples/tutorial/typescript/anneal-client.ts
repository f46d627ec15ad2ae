// Calls anneal over HTTP.
// ANNEAL_HTTP is the address of anneal, ANNEAL_TOKEN the API key, if anneal requires one.

const ANNEAL = process.env.ANNEAL_HTTP ?? "http://127.0.0.1:8080";
const TOKEN = process.env.ANNEAL_TOKEN;
const AGENT = "tutorial";

/** A turn's request. */
export interface Turn {
  message: string;
  /** A repeated request with this id gets the same answer, and stores no second question. */
  requestId: string;
  /** The session to continue; absent: a new one. */
  sessionId?: string | undefined;
  /** The end user of a new session. */
  userId?: string | undefined;
}

export interface Message {
  role: string;
  content: { type: string; text?: string }[];
}

/** A session; its messages only if it was read by itself. */
export interface Session {
  sessionId: string;
  userId: string;
  title: string;
  messages?: Message[];
}

/** Sends a request about the agent. Rejects if there is no answer; a refusal is an answer. */
export async function callAnneal(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (TOKEN) headers.set("Authorization", `Bearer ${TOKEN}`);
  return fetch(`${ANNEAL}/api/agents/${AGENT}/${path}`, { ...init, headers });
}

/** Sends a turn's request; with the id of the last event received, for the rest of its events. */
export async function sendTurn(turn: Turn, lastEventId?: string): Promise<Response> {
  const headers = new Headers({ "Content-Type": "application/json" });
  if (lastEventId) headers.set("Last-Event-ID", lastEventId);
  return callAnneal("chat", { method: "POST", headers, body: JSON.stringify(turn) });
}

/** Gets a session with its messages, or with at most `limit` of them. */
export async function getSession(session: string, limit?: number): Promise<Response> {
  const query = limit === undefined ? "" : `?limit=${limit}`;
  return callAnneal(`sessions/${encodeURIComponent(session)}${query}`);
}
