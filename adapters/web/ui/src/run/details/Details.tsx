/** The third pane: what the event changed, the event, the state, tools, usage. */
import { useEffect, useMemo } from "preact/hooks";
import { address, step, TABS, type Tab } from "../../core/address";
import { useAction } from "../../core/actions";
import { Choice, ChoiceContext } from "../blame/choice";
import { ChosenBar } from "../blame/ChosenBar";
import { PinBar } from "../blame/PinBar";
import { useRun } from "../model";
import { Changed } from "./Changed";
import { EventPane } from "./EventPane";
import { StateTree } from "./StateTree";
import { ToolsTab } from "./ToolsTab";
import { UsageTab } from "./UsageTab";
import "./details.css";

const SHOWN: Record<Tab, () => preact.JSX.Element | null> = {
  changed: Changed,
  event: EventPane,
  state: StateTree,
  tools: ToolsTab,
  usage: UsageTab,
};

export function Details() {
  const model = useRun();
  const choice = useMemo(() => new Choice(model), [model]);
  useEffect(() => () => choice.cancel(), [choice]);
  const chosen = address.value.tab;
  const Shown = SHOWN[chosen];
  return (
    <ChoiceContext.Provider value={choice}>
      <section class="details" aria-label="Details">
        <PinBar />
        <div class="tabs" role="tablist" aria-label="Details">
          {TABS.map((tab) => (
            <TabButton key={tab} tab={tab} isChosen={tab === chosen} />
          ))}
        </div>
        <div class="shown" id="details-panel" role="tabpanel" aria-label={chosen} tabIndex={0}>
          <Shown />
        </div>
        <ChosenBar />
      </section>
    </ChoiceContext.Provider>
  );
}

function TabButton({ tab, isChosen }: { tab: Tab; isChosen: boolean }) {
  const choose = () => step({ tab });
  useAction(`tab.${tab}`, choose);
  return (
    <button role="tab" aria-selected={isChosen} aria-controls="details-panel" onClick={choose}>
      {tab}
    </button>
  );
}
