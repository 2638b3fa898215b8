/** A call that has not ended: what is known of it, and a person's decision about it. */
import "./doubt.css";
import { useState } from "preact/hooks";
import { address } from "../../core/address";
import { Problem } from "../../core/api";
import { duration, number, when } from "../../core/format";
import { visible } from "../../core/text";
import { Link } from "../Link";
import { ProblemNote } from "../Problem";
import { Text } from "../Text";
import { CallText, DecidedValue } from "./CallText";
import { decisionText, isOver, lastingDecision, question, standing, type Call, type Question } from "./call";
import { DecisionForm } from "./DecisionForm";
import { draftOf, type Draft } from "./decision";
import { useHolder, useReason, useVersions, useWorkerAt, type Holder } from "./facts";

export interface DoubtProps {
  run: string;
  call: Call;
  /** Whether the run goes on after this version: a decision is about its end. */
  isPast?: boolean;
  /** Whether the card stands in the call itself, which says its name and arguments. */
  isInside?: boolean;
}

export function DoubtCard(props: DoubtProps) {
  const { run, call, isPast = false, isInside = false } = props;
  const draft = draftOf(run, call);
  const asked = question(call);
  const holder = useHolder(run, !isPast && asked !== "none", call.at);
  const isAtWork = holder?.is_live === true;
  // While a worker has the run, a call that runs is nothing to decide about.
  if (isInside && call.status === "started" && holder?.is_live !== false) return null;
  const mayDecide = asked !== "none" && !isAtWork && (!isPast || draft.choice.value !== null);
  return (
    <section class={`doubt doubt-${call.status}`} aria-label={`Decide about ${visible(call.name)} ${visible(call.call_id)}`}>
      {!isInside && <Head {...props} />}
      <Known run={run} call={call} holder={holder} isPast={isPast} />
      <Outcome draft={draft} call={call} isPast={isPast} />
      {isPast && draft.choice.value === null && asked !== "none" && (
        <p class="note">
          This is how it stood at event {number(call.at)}. <Link to={{ screen: "run", run }}>Decide at the end of the run</Link>
        </p>
      )}
      {mayDecide && <Decide draft={draft} call={call} asked={asked} />}
    </section>
  );
}

function Head({ run, call }: DoubtProps) {
  return (
    <header>
      <h2>
        <Text value={call.name || "step"} /> <Text value={call.call_id} class="mono quiet" />
      </h2>
      <pre class="given">
        <CallText run={run} call={call} field="arguments" />
      </pre>
    </header>
  );
}

const POLICY: Record<string, string> = {
  ask: "Its tool says that a person is asked.",
  retry: "Its tool says that it is run again: recovery does so without a decision.",
  fail: "Its tool says that it fails: recovery does so without a decision.",
};

function Known({ run, call, holder, isPast }: { run: string; call: Call; holder: Holder | null; isPast: boolean }) {
  const versions = useVersions(run, call, ["attempts", "doubt"]);
  const worker = useWorkerAt(run, versions.attempts);
  const isOpen = !isOver(call);
  const began = call.started_at;
  return (
    <dl class="known">
      {began && (
        <>
          <dt>Started</dt>
          <dd>
            {when(began)}
            {!isPast && ` (${duration((Date.now() - Date.parse(began)) / 1000)} ago)`}
            {versions.attempts && <At run={run} version={versions.attempts} />}
            {(call.attempts ?? 0) > 1 && `, attempt ${call.attempts}`}
          </dd>
        </>
      )}
      {worker && (
        <>
          <dt>Worker</dt>
          <dd>
            <Text value={worker} class="mono" />
            {call.status === "in_doubt" && ", which died, or stopped without a word"}
          </dd>
        </>
      )}
      {isOpen && !isPast && holder && (
        <>
          <dt>Now</dt>
          <dd>{atWork(holder, call)}</dd>
        </>
      )}
      {call.doubt && (
        <>
          <dt>In doubt</dt>
          <dd>
            {versions.doubt && (
              <>
                <At run={run} version={versions.doubt} />
                {": "}
              </>
            )}
            <CallText run={run} call={call} field="doubt" />
          </dd>
        </>
      )}
      {call.status === "in_doubt" && call.on_interrupt && (
        <>
          <dt>Policy</dt>
          <dd>{POLICY[call.on_interrupt]}</dd>
        </>
      )}
    </dl>
  );
}

function atWork(holder: Holder, call: Call) {
  if (!holder.is_live) {
    const mayHave = call.status === "started" ? " It was started, and may have happened." : "";
    return `No worker has the run.${mayHave}`;
  }
  return (
    <>
      Worker <Text value={holder.worker ?? ""} class="mono" /> has the run: nothing can be decided while it works.
    </>
  );
}

/** "at event 19": a link that goes there, and leaves all else of the run's screen as it is. */
export function At({ run, version }: { run: string; version: number }) {
  const here = address.value;
  const isHere = here.screen === "run" && here.run === run;
  return (
    <>
      {" "}
      at event{" "}
      <Link to={{ ...(isHere ? here : { screen: "run", run }), at: version }}>{number(version)}</Link>
    </>
  );
}

interface Made {
  draft: Draft;
  call: Call;
}

/** What became of it: a decision that is recorded, by this page or by another. */
function Outcome({ draft, call, isPast }: Made & { isPast: boolean }) {
  const { run } = draft;
  const progress = draft.progress.value;
  if (progress.kind === "recorded") return <Recorded run={run} call={call} version={progress.version} />;
  if (progress.kind === "changed") return <Changed draft={draft} problem={progress.problem} call={progress.call} />;
  const isTyped = draft.choice.value !== null;
  if (isTyped && standing(call) !== draft.stood && call.at > draft.version) {
    return <Changed draft={draft} problem={null} call={call} />;
  }
  const decision = lastingDecision(call);
  if (!decision) return null;
  return (
    <>
      <DecidedLine run={run} call={call} />
      {!isPast && <Next run={run} />}
    </>
  );
}

function Recorded({ run, call, version }: { run: string; call: Call; version: number }) {
  return (
    <div class="recorded" role="status">
      <p>
        The decision is recorded
        <At run={run} version={version} />.
      </p>
      {call.at >= version && <DecidedLine run={run} call={call} />}
      <Next run={run} />
    </div>
  );
}

/** What happens next, as a command. */
function Next({ run }: { run: string }) {
  const command = `turnledger recover ${run} --app MODULE:AGENT`;
  const [copied, setCopied] = useState("");
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(command);
      setCopied("Copied.");
    } catch {
      setCopied("The browser does not let the page copy: select the text.");
    }
  }
  return (
    <p class="next">
      It is used when the run is recovered: <code>{command}</code> <button onClick={() => void copy()}>Copy</button>{" "}
      <span aria-live="polite">{copied}</span>
    </p>
  );
}

/** "Decided at event 21 by ann: it happened, with {…}". */
export function DecidedLine({ run, call }: { run: string; call: Call }) {
  const decision = lastingDecision(call);
  const isApproval = decision === "approve" || decision === "deny" || decision === "edit";
  const versions = useVersions(run, call, isApproval ? ["approval"] : ["decision"]);
  const found = isApproval ? versions.approval : versions.decision;
  const by = isApproval ? call.approval_by : call.decided_by;
  const said = isApproval ? call.approval_text : call.decision_text;
  if (!decision) return null;
  return (
    <p class="decided">
      Decided{found && <At run={run} version={found} />}
      {by && (
        <>
          {" "}
          by <Text value={by} class="by" />
        </>
      )}
      : {decisionText(decision)}
      {decision === "completed" && (
        <>
          , with <DecidedValue run={run} call={call} />
        </>
      )}
      {decision === "edit" && (
        <>
          : <CallText run={run} call={call} field="edited_arguments" class="mono" />
        </>
      )}
      {said && (
        <>
          : <CallText run={run} call={call} field={isApproval ? "approval_text" : "decision_text"} />
        </>
      )}
    </p>
  );
}

/** Somebody was first, or the run went on: what was decided meanwhile. */
function Changed({ draft, problem, call }: Made & { problem: Problem | null }) {
  const isDecidable = question(call) !== "none";
  return (
    <div class="changed-meanwhile" role="alert">
      <p>
        <strong>Your decision is not recorded: the call changed meanwhile.</strong>
      </p>
      {lastingDecision(call) ? (
        <DecidedLine run={draft.run} call={call} />
      ) : (
        <p>
          It is {call.status.replace("_", " ")} now, at event {number(call.at)} of its run.
          {problem && (
            <>
              {" "}
              <Text value={problem.message} lines />
            </>
          )}
        </p>
      )}
      <p class="choices">
        <button onClick={() => draft.forget()}>Leave it so</button>
        {isDecidable && <button onClick={() => draft.lookAt(call)}>Decide otherwise</button>}
      </p>
    </div>
  );
}

function Decide({ draft, call, asked }: Made & { asked: Question }) {
  const reason = useReason();
  const progress = draft.progress.value;
  if (progress.kind === "recorded" || progress.kind === "changed") return null;
  if (reason) return <p class="note">{reason}</p>;
  return (
    <>
      <DecisionForm draft={draft} call={call} asked={asked} />
      {progress.kind === "refused" && <ProblemNote problem={progress.problem} again={() => void draft.send()} />}
    </>
  );
}
