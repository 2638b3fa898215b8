/** The row that is looked at: what differs in its events, and in the states after them. */
import { count, number } from "../core/format";
import { Link } from "../parts/Link";
import { ProblemNote } from "../parts/Problem";
import { Text } from "../parts/Text";
import { stateValue } from "../run/blame/values";
import { Skeletons } from "../parts/Skeletons";
import { meaningOf } from "./CompareRows";
import { Differences } from "./Differences";
import { useComparison, type StateDifferences } from "./model";

export function EventDifferences() {
  const model = useComparison();
  const found = model.current.value;
  return (
    <section class="details" aria-label="What differs in the event">
      <h2>The event</h2>
      <div class="shown">
        {found ? (
          <>
            <p class="said">
              <Text value={found.row.tag} />: {meaningOf(found.row)}.
            </p>
            <p class="opens">
              {found.row.first != null && <Open run={model.first} at={found.row.first} name="first" />}
              {found.row.second != null && <Open run={model.second} at={found.row.second} name="second" />}
            </p>
            {found.row.kind === "changed" ? (
              <Differences key={model.at.value} label="Differences of the event" changes={found.row.changes!} cut={found.cut} />
            ) : (
              <p>
                <Text value={found.row.text} lines />
              </p>
            )}
          </>
        ) : (
          <Skeletons />
        )}
      </div>
    </section>
  );
}

function Open({ run, at, name }: { run: string; at: number; name: string }) {
  return (
    <Link to={{ screen: "run", run, at }}>
      Open the {name} run at event {number(at)}
    </Link>
  );
}

export function StatePane() {
  const model = useComparison();
  const { value, problem, isStale } = model.state.loaded.value;
  return (
    <section class="details" aria-label="What differs in the state">
      <h2>Only what differs in the state</h2>
      <div class="shown" aria-busy={isStale}>
        {problem ? (
          <ProblemNote problem={problem} again={() => model.state.again()} />
        ) : value ? (
          <div class={isStale ? "stale" : ""}>
            <States key={`${value.first_version} ${value.second_version}`} found={value} />
          </div>
        ) : (
          <Skeletons />
        )}
      </div>
    </section>
  );
}

function States({ found }: { found: StateDifferences }) {
  const model = useComparison();
  const { first_version: first, second_version: second, changes, complete } = found;
  const listed = found.cut?.find((one) => one.pointer === "/changes")?.total ?? changes.length;
  const where = `First run after event ${number(first)}, second after event ${number(second)}`;
  if (listed === 0) return <p class="said">{where}: the states are the same, but for ids and times.</p>;
  return (
    <>
      <p class="said">
        {where}: {count(listed, "value")} {listed === 1 ? "differs" : "differ"}
        {complete === false && ", and more exist"}
        {changes.length < listed && `; here are the first ${number(changes.length)}`}.
      </p>
      <Differences
        label="Differences of the state"
        changes={changes}
        cut={found.cut}
        first={(pointer, from, limit, abort) => stateValue(model.first, first, pointer, from, limit, abort)}
        second={(pointer, from, limit, abort) => stateValue(model.second, second, pointer, from, limit, abort)}
      />
    </>
  );
}
