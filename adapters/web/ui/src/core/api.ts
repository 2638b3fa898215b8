/** Requests to the HTTP API: the only thing that the page talks to. */
import createClient from "openapi-fetch";
import type { components, paths } from "#types";
import { parsed } from "./json";

export type Schemas = components["schemas"];

/** An answer that is not what was asked for: an RFC 9457 problem, or no answer at all. */
export class Problem extends Error {
  readonly status: number;
  readonly type: string;
  readonly title: string;
  readonly members: Record<string, unknown>;

  constructor(status: number, type: string, title: string, detail: string, members: Record<string, unknown> = {}) {
    super(detail);
    this.status = status;
    this.type = type.replace("urn:turnledger:problem:", "");
    this.title = title;
    this.members = members;
  }
}

const HEADERS = { "X-Turnledger": "1" };

async function asked(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch (error) {
    if (request.signal.aborted) throw error;
    throw unreachable();
  }
}

function unreachable(): Problem {
  return new Problem(0, "unreachable", "The server does not answer", "Is `turnledger serve` still running?");
}

// The server is asked for no more at once: what is wanted meanwhile waits, and is often no longer
// wanted when its turn comes. Streams are not counted.
const MOST = 4;
const waiting: (() => void)[] = [];
let underWay = 0;

async function inTurn(request: Request): Promise<Response> {
  if (underWay < MOST) underWay += 1;
  else await new Promise<void>((resolve) => waiting.push(resolve));
  try {
    request.signal.throwIfAborted();
    const response = await asked(request);
    // It is under way until its body is here.
    const body = await response.arrayBuffer();
    const answer = new Response(body.byteLength ? body : null, response);
    // Where the length is known, openapi-fetch asks for `json`.
    answer.headers.set("Content-Length", String(body.byteLength));
    answer.json = async () => parsed(await answer.text());
    return answer;
  } catch (error) {
    throw error instanceof Problem || request.signal.aborted ? error : unreachable();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else underWay -= 1;
  }
}

/** The typed client: `ask(client.GET("/v1/runs", {...}))`. */
export const client = createClient<paths>({ baseUrl: location.origin, headers: HEADERS, fetch: inTurn });

interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer; throws the Problem that it is otherwise. */
export async function ask<T>(call: Promise<Answered<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (response.ok) return data as T;
  throw problemOf(response.status, error);
}

/** A request outside the typed client: streams of lines, and answers that are text or bytes. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await asked(
    new Request(new URL(path, location.origin), { ...init, headers: { ...HEADERS, ...init.headers } }),
  );
  if (response.ok) return response;
  throw problemOf(response.status, await response.json().catch(() => null));
}

function problemOf(status: number, body: unknown): Problem {
  if (typeof body !== "object" || body === null || !("title" in body)) {
    return new Problem(status, "unknown", `The server answered ${status}`, "It gave no reason.");
  }
  const given = body as Record<string, unknown>;
  return new Problem(status, String(given.type), String(given.title), String(given.detail ?? ""), given);
}

/** Exchange the one-time code of the link for a session, and take it out of the address. */
export async function beginSession(): Promise<void> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  await ask(
    client.POST("/v1/session", { body: { code }, params: { header: { "X-Turnledger": "1" } } }),
  );
}
