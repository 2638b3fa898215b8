/** Server-sent events by fetch: EventSource can't send the header that a session's cookie needs. */
import { Problem, request, type Schemas } from "./api";

export type Streamed = Schemas["StreamedRecord"];
export type Connection = "connecting" | "live" | "lost" | "closed";

export interface Follower {
  close(): void;
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
// The server sends a comment every 15 seconds: without one for so long, the connection is dead.
const SILENCE = 40_000;

/**
 * Follow a stream from a position on. Records come once each and in order; a lost connection is
 * taken up again where it ended.
 */
export function follow(
  path: string,
  after: number,
  onRecords: (records: Streamed[]) => void,
  onConnection: (state: Connection, problem?: Problem) => void,
): Follower {
  let position = after;
  let isClosed = false;
  let abort = new AbortController();

  async function read(): Promise<void> {
    const response = await request(`${path}?after=${position}`, {
      signal: abort.signal,
      headers: { Accept: "text/event-stream" },
      cache: "no-store",
    });
    onConnection("live");
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const timer = window.setTimeout(() => abort.abort(), SILENCE);
      const { value, done } = await reader.read().finally(() => clearTimeout(timer));
      if (done || isClosed) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop()!;
      const records = parts.flatMap(recordsOf).filter((record) => record.position > position);
      if (records.length === 0) continue;
      position = records.at(-1)!.position;
      onRecords(records);
    }
  }

  async function run(): Promise<void> {
    let wait = FIRST_WAIT;
    while (!isClosed) {
      const before = position;
      try {
        await read();
        onConnection("lost");
      } catch (error) {
        if (isClosed) return;
        onConnection("lost", error instanceof Problem ? error : undefined);
        // Without a session it goes on trying: the link of a restarted server, opened in another
        // tab, brings one.
        if (error instanceof Problem && [403, 404].includes(error.status)) return;
      }
      if (isClosed) return;
      wait = position > before ? FIRST_WAIT : Math.min(wait * 2, LONGEST_WAIT);
      await new Promise((resolve) => setTimeout(resolve, wait));
      abort = new AbortController();
      if (!isClosed) onConnection("connecting");
    }
  }

  onConnection("connecting");
  void run();
  return {
    close: () => {
      isClosed = true;
      abort.abort();
      onConnection("closed");
    },
  };
}

function recordsOf(message: string): Streamed[] {
  const lines = message.split("\n").filter((line) => line.startsWith("data:"));
  if (lines.length === 0) return [];
  return [JSON.parse(lines.map((line) => line.slice(5).trimStart()).join("\n")) as Streamed];
}

// No ledger has a later position.
const LAST_POSITION = Number.MAX_SAFE_INTEGER + 1;

/** The position of the ledger's last record: what is followed from there on is new. */
export async function lastPosition(): Promise<number> {
  const headers = { Accept: "application/x-ndjson" };
  const answer = await request(`/v1/events?before=${LAST_POSITION}&limit=1`, { headers, cache: "no-store" });
  const line = (await answer.text()).trim();
  return line ? (JSON.parse(line) as { position: number }).position : 0;
}
