// Reads the events of a turn, in a browser and in Node.

// Most tries in a row that bring no event.
const TRIES = 5;

/**
 * An event of a turn. docs/http.md lists the types and their fields.
 * @typedef {{type: string, text?: string, sessionId?: string, problem?: Problem}} TurnEvent
 * @typedef {{reason: string, detail: string, retryAfterMs?: number}} Problem
 */

/**
 * Runs a turn. Yields each of its events once. Continues after a lost connection.
 * @param {(lastEventId: string | undefined) => Promise<Response>} send Sends the request of the
 *   turn, with this header Last-Event-ID. The request needs a requestId: before the first event it
 *   alone prevents a second question.
 * @returns {AsyncGenerator<TurnEvent>}
 */
export async function* turnEvents(send) {
  /** @type {string | undefined} */
  let lastEventId;
  let failures = 0;
  while (true) {
    let waitMs = 1000;
    const response = await send(lastEventId).catch(() => undefined);
    if (response?.ok) {
      for await (const [id, event] of readEvents(response)) {
        [lastEventId, failures] = [id, 0];
        yield event;
        if (event.type === "done" || event.type === "error") return;
      }
    } else if (response) {
      /** @type {Problem} */
      const problem = await response.json();
      if (problem.retryAfterMs === undefined) throw new Error(`${problem.reason}: ${problem.detail}`);
      waitMs = problem.retryAfterMs;
    }
    failures += 1;
    if (failures === TRIES) throw new Error("anneal cannot be reached");
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

/**
 * Yields the id and the data of each event that arrives before the connection ends.
 * @param {Response} response
 * @returns {AsyncGenerator<[string, TurnEvent]>}
 */
async function* readEvents(response) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let [text, id] = ["", ""];
  try {
    while (reader) {
      const piece = await reader.read().catch(() => undefined);
      if (!piece || piece.done) return;
      const lines = (text + piece.value).split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        if (line.startsWith("id: ")) id = line.slice(4);
        if (line.startsWith("data: ")) yield [id, JSON.parse(line.slice(6))];
      }
    }
  } finally {
    await reader?.cancel().catch(() => undefined);
  }
}
