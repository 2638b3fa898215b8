/** The runs that a run is made of, and those that were forked from them, as a tree. */
import { useSignal } from "@preact/signals";
import { useAction } from "../../core/actions";
import { ask, client, type Schemas } from "../../core/api";
import { number, shortId, when } from "../../core/format";
import { useLoader } from "../../core/loading";
import { Dialog } from "../../parts/Dialog";
import { Link } from "../../parts/Link";
import { ProblemNote } from "../../parts/Problem";
import { Text } from "../../parts/Text";
import { useRun, type RunInfo } from "../model";

const CHILDREN = 50;

interface Branch {
  info: RunInfo;
  children: Branch[];
  hasMore: boolean;
}

export function Lineage() {
  const isShown = useSignal(false);
  const show = () => {
    isShown.value = true;
  };
  useAction("lineage", show);
  return (
    <>
      <button onClick={show}>Lineage</button>
      {isShown.value && (
        <Dialog title="Lineage" close={() => (isShown.value = false)} wide>
          <Tree close={() => (isShown.value = false)} />
        </Dialog>
      )}
    </>
  );
}

function Tree({ close }: { close: () => void }) {
  const { run } = useRun();
  const tree = useLoader(
    () => ({ run }),
    (path, abort) => load(path.run, abort),
  );
  const { value, problem } = tree.loaded.value;
  if (problem) return <ProblemNote problem={problem} again={tree.again} />;
  if (!value) return <p role="status">Loading…</p>;
  return (
    <ul class="lineage" role="tree" aria-label="Lineage" onClick={close}>
      <Node branch={value} current={run} />
    </ul>
  );
}

function Node({ branch: { info, children, hasMore }, current }: { branch: Branch; current: string }) {
  const isCurrent = info.run_id === current;
  return (
    <li role="treeitem" aria-current={isCurrent || undefined} aria-selected={isCurrent}>
      <Link to={{ screen: "run", run: info.run_id }} title={info.run_id}>
        <Text value={info.agent || info.prompt || "run"} /> <code>{shortId(info.run_id)}</code>
      </Link>{" "}
      {info.parent && `${info.kind} at event ${number(info.parent_version)}, `}
      {info.status}, {number(info.version)} events, {when(info.started_at)}
      {isCurrent && <strong> (this run)</strong>}
      {children.length > 0 && (
        <ul role="group">
          {children.map((child) => (
            <Node key={child.info.run_id} branch={child} current={current} />
          ))}
        </ul>
      )}
      {hasMore && <p>More forks exist: filter the runs by parent:{info.run_id}</p>}
    </li>
  );
}

/** The tree from the oldest ancestor on: of each run on the way, all that was forked from it. */
async function load(run: string, abort: AbortSignal): Promise<Branch> {
  const found = await ask(client.GET("/v1/runs/{run}/lineage", { params: { path: { run } }, signal: abort }));
  const way = (found as Schemas["Lineage"]).runs.map((one) => one.run);
  let below: Branch | null = null;
  for (const info of way.reverse()) {
    const query = { parent: info.run_id, limit: CHILDREN };
    const page = (await ask(client.GET("/v1/runs", { params: { query }, signal: abort }))) as Schemas["RunPage"];
    const others: Branch[] = page.runs
      .filter((child) => child.run_id !== below?.info.run_id)
      .map((child) => ({ info: child, children: [], hasMore: false }));
    const children: Branch[] = below ? [below, ...others] : others;
    below = { info, children, hasMore: Boolean(page.next) };
  }
  return below!;
}
