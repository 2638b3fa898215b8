// Begins a run, sends the same events again, and reads them, with the types of the API.
import type { components } from "./turnledger";

type Schemas = components["schemas"];
declare const process: { env: Record<string, string> }; // or install @types/node

const server = "http://127.0.0.1:8321";
const token = process.env.TURNLEDGER_TOKEN;

async function call<Answer>(path: string, init: RequestInit = {}): Promise<Answer> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(server + path, { ...init, headers: { ...headers, ...init.headers } });
  if (answer.ok) return answer.json();
  const problem: Schemas["Problem"] = await answer.json();
  throw new Error(`${problem.type}: ${problem.detail}`);
}

const run = crypto.randomUUID();
// Ids of our own: what is sent again is recorded once.
const items: Schemas["Item"][] = [
  { type: "run.started", data: { tags: { customer: "acme" } }, event_id: crypto.randomUUID() },
  { type: "custom", data: { kind: "shop.note", data: "hello" }, event_id: crypto.randomUUID() },
];
const request = { method: "POST", headers: { "if-none-match": "*" }, body: JSON.stringify(items) };
for (const attempt of ["sent", "sent again"]) {
  const done = await call<Schemas["AppendedEvents"]>(`/v1/runs/${run}/events`, request);
  console.log(`${attempt}: version ${done.version}, duplicate: ${done.duplicate}`);
}
const page = await call<Schemas["EventPage"]>(`/v1/runs/${run}/events`);
for (const event of page.events) console.log(event.version, event.type);
