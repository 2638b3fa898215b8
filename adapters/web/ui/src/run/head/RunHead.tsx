/** The lines above a run: what it is, how it stands, and what can be done with it. */
import { number, shortId } from "../../core/format";
import { Text } from "../../parts/Text";
import { CompareWith } from "./CompareWith";
import { Copy } from "./Copy";
import { Fork } from "./Fork";
import { Lineage } from "./Lineage";
import { useRun } from "../model";
import { SearchBar } from "./SearchBar";
import { Verify } from "./Verify";

const CONNECTIONS: Record<string, string> = {
  connecting: "connecting",
  live: "live",
  lost: "connection lost, trying again",
  closed: "not connected",
};

export function RunHead() {
  const model = useRun();
  const info = model.info.value;
  return (
    <header class="run-head">
      <h1 title={model.run}>
        <Text value={info?.agent || info?.prompt || "run"} /> <code>{shortId(model.run)}</code>
      </h1>
      {info && <span class={`status status-${info.status}`}>{info.status}</span>}
      <span class="figures">
        {/* As wide as the last version, so that a step moves nothing. */}
        <output style={{ minWidth: `${number(model.head.value).length + 6}ch` }}>event {number(model.at.value)}</output> of{" "}
        {number(model.head.value)}
      </span>
      <Following />
      <SearchBar />
      <span class="buttons">
        <Verify />
        <Fork />
        <Lineage />
        <CompareWith />
        <Copy />
      </span>
    </header>
  );
}

/** Whether new events are followed, and whether they arrive. */
function Following() {
  const model = useRun();
  const state = model.connection.value;
  return (
    <span class={`connection connection-${state}`} role="status">
      {CONNECTIONS[state]}
      {state === "live" && !model.isFollowing.value && (
        <>
          , paused here <button onClick={() => model.follow()}>Follow</button>
        </>
      )}
    </span>
  );
}
