/** Help: the keys, and what the symbols of events mean; made from the tables that bind and draw them. */
import { ACTIONS, isOffered, keyName, offers } from "../core/actions";
import { KINDS } from "../core/kinds";
import { Dialog } from "../parts/Dialog";

export function Help({ close }: { close: () => void }) {
  void offers.value;
  const groups = Map.groupBy(ACTIONS, (action) => action.group);
  return (
    <Dialog title="Help" close={close} wide>
      <div class="keys">
        {[...groups].map(([group, actions]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {actions.map((action) => (
                <Row key={action.id} keys={action.keys} text={isOffered(action.id) ? action.name : `${action.name} (not here)`} />
              ))}
            </dl>
          </section>
        ))}
        <section>
          <h3>Events</h3>
          <dl>
            {KINDS.map((kind) => (
              <>
                <dt class={`kind-${kind.kind}`}>
                  <span class="symbol">{kind.symbol}</span>
                </dt>
                <dd>{kind.meaning}</dd>
              </>
            ))}
          </dl>
        </section>
      </div>
    </Dialog>
  );
}

function Row({ keys, text }: { keys: string[]; text: string }) {
  return (
    <>
      <dt>
        {keys.map((key) => (
          <kbd key={key}>{keyName(key)}</kbd>
        ))}
      </dt>
      <dd>{text}</dd>
    </>
  );
}
