/** The events of a run: rows of which only those in sight are loaded. */
import { number } from "../core/format";
import { kindOfCharacter, kindOfType } from "../core/kinds";
import { Rows } from "../parts/Rows";
import { Text } from "../parts/Text";
import { useRun } from "./model";

const ROW = 22;

export function EventList() {
  const model = useRun();
  const head = model.head.value;
  return (
    // As wide as the last version: the line beside it has the rest.
    <section class="events" aria-label="Events" style={{ "--version": `${Math.max(number(head).length, 3) + 1}ch` }}>
      <Rows
        count={head}
        height={ROW}
        current={model.at.value - 1}
        label="Events"
        onSight={(first, last) => model.events.want(first + 1, last + 1, head)}
        row={(place) => <EventRow version={place + 1} />}
      />
    </section>
  );
}

function EventRow({ version }: { version: number }) {
  const model = useRun();
  void model.events.changed.value;
  const event = model.events.get(version);
  const kind = event ? kindOfType(event.type) : kindOfCharacter(model.shape.value[version - 1] ?? ".");
  const at = model.at.value;
  const damage = model.damaged.value.get(version);
  const classes = ["event", `kind-${kind.kind}`];
  if (version > at) classes.push("later");
  if (version === at) classes.push("current");
  if (damage) classes.push("damaged");
  return (
    <div
      class={classes.join(" ")}
      role="option"
      aria-selected={version === at}
      aria-posinset={version}
      aria-setsize={model.head.value}
      title={damage ?? kind.meaning}
      onClick={() => model.jumpTo(version)}
    >
      <span class="version">{number(version)}</span>
      <span class="symbol" aria-hidden="true">
        {kind.symbol}
      </span>
      <span class="type">{event ? <Text value={event.type} /> : <span class="skeleton" />}</span>
      <span class="said">{event ? <Text value={event.line} /> : <span class="skeleton" />}</span>
    </div>
  );
}
