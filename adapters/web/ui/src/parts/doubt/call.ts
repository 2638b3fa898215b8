/** A tool call as the state has it, and what a person may decide about it. */
import type { Schemas } from "../../core/api";
import type { Cuts } from "../../core/cuts";

/** One entry of /tools; fields that have their default are left out. */
export interface Call {
  call_id: string;
  name: string;
  status: "pending" | "started" | "completed" | "failed" | "in_doubt";
  number: number;
  arguments?: string;
  evaluation_id?: string;
  attempts?: number;
  asked_at?: string;
  started_at?: string;
  ended_at?: string;
  result?: string | null;
  value?: unknown;
  error_type?: string;
  error_message?: string;
  decision?: "completed" | "failed" | "retry";
  decision_value?: unknown;
  decision_text?: string;
  decided_by?: string;
  until_resumed?: boolean;
  superseded?: boolean;
  on_interrupt?: "" | "retry" | "fail" | "ask";
  doubt?: string;
  amended?: string | null;
  approval?: "" | "not_needed" | "needed" | "approved" | "denied" | "edited";
  approval_text?: string;
  approval_by?: string;
  edited_arguments?: string;
  parent?: string;
  kind?: "tool" | "model";
  /** The version of the state that it is of. */
  at: number;
  /** How long its values are in all that were shortened, by their pointers: "/arguments". */
  totals: Record<string, number>;
}

export type Decision = Schemas["DecisionRequest"]["decision"];

/** What is asked about a call: how it ended, whether it may run, or nothing. */
export type Question = "outcome" | "approval" | "none";

/** A call of an answer, whatever was left out of it; `pointer` is where it is in the answer. */
export function asCall(item: unknown, at: number, cuts: Cuts, pointer: string): Call {
  const given = (item ?? {}) as Partial<Call>;
  const { call_id = "", name = "", status = "pending", number = 0 } = given;
  const own = [...cuts.values()].filter((cut) => cut.pointer.startsWith(`${pointer}/`));
  const totals = Object.fromEntries(own.map((cut) => [cut.pointer.slice(pointer.length), cut.total]));
  return { ...given, call_id, name, status, number, at, totals };
}

export function isOver(call: Call): boolean {
  return call.status === "completed" || call.status === "failed";
}

/** The decision that the next recovery goes by, if there is one. */
export function lastingDecision(call: Call): Decision | undefined {
  if (call.decision && !call.until_resumed) return call.decision;
  if (call.approval === "denied") return "deny";
  if (isOver(call)) return undefined;
  if (call.approval === "approved") return "approve";
  return call.approval === "edited" ? "edit" : undefined;
}

/** The same rule as the server's: a call that waits for approval is approved, one that began has an outcome. */
export function question(call: Call): Question {
  if (isOver(call) || call.superseded) return "none";
  const mayNeedApproval = call.approval !== undefined && call.approval !== "" && call.approval !== "not_needed";
  const isTriedAgain = call.status === "in_doubt" && call.on_interrupt === "retry";
  if (mayNeedApproval && (call.status === "pending" || isTriedAgain)) return "approval";
  return call.status === "pending" ? "none" : "outcome";
}

/** What a decision about the call depends on: if it changes, the decision is another one. */
export function standing(call: Call): string {
  const { status, attempts = 0, approval = "", edited_arguments: edited = "" } = call;
  const began = status === "started" ? "in_doubt" : status;
  return JSON.stringify([began, attempts, approval, edited, lastingDecision(call) ?? "", call.decided_by ?? ""]);
}

const STATUS: Record<Call["status"], string> = {
  pending: "not started",
  started: "running",
  completed: "completed",
  failed: "failed",
  in_doubt: "in doubt",
};

export const SYMBOL: Record<Call["status"], string> = {
  pending: "○",
  started: "▷",
  completed: "▣",
  failed: "✕",
  in_doubt: "?",
};

export function statusOf(call: Call): string {
  if (call.superseded) return `${STATUS[call.status]}, superseded`;
  if (call.status === "pending" && call.approval === "needed") return "waits for approval";
  return lastingDecision(call) && !isOver(call) ? `${STATUS[call.status]}, decided` : STATUS[call.status];
}

const DECIDED: Record<Decision, string> = {
  completed: "it happened",
  failed: "it did not happen",
  retry: "it is run again",
  approve: "it may run",
  deny: "it must not run",
  edit: "it may run with other arguments",
};

export function decisionText(decision: Decision): string {
  return DECIDED[decision];
}
