/** An event by its id: opens its run there. */
import { useEffect } from "preact/hooks";
import { address, href } from "../core/address";
import { ask, client } from "../core/api";
import { useLoader } from "../core/loading";
import { ProblemNote } from "../parts/Problem";

export function EventScreen() {
  const found = useLoader(
    () => (address.value.event ? { event_id: address.value.event } : null),
    (path, abort) => ask(client.GET("/v1/events/{event_id}", { params: { path }, signal: abort })),
  );
  const { value, problem } = found.loaded.value;
  useEffect(() => {
    if (!value) return;
    const to = { ...address.peek(), screen: "run" as const, event: "", run: value.run_id, at: value.version };
    history.replaceState(null, "", href(to));
    address.value = to;
  }, [value]);
  if (problem) return <ProblemNote problem={problem} again={found.again} />;
  return (
    <main class="screen">
      <p class="none">Looking for the event…</p>
    </main>
  );
}
