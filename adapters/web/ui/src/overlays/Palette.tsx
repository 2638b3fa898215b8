/** All actions that can be done here, by name. */
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ACTIONS, isOffered, keyName, perform } from "../core/actions";
import { Dialog } from "../parts/Dialog";

const ITSELF = ["actions", "live.pause"];

export function Palette({ close }: { close: () => void }) {
  const text = useSignal("");
  const chosen = useSignal(0);
  const list = useRef<HTMLUListElement>(null);
  const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = ACTIONS.filter(
    (action) =>
      isOffered(action.id) &&
      !ITSELF.includes(action.id) &&
      words.every((word) => `${action.group} ${action.name}`.toLowerCase().includes(word)),
  );
  const current = Math.min(chosen.value, found.length - 1);

  function choose(place: number): void {
    const action = found[place];
    close();
    // After the dialog is gone, so that what is done gets the focus.
    if (action) setTimeout(() => perform(action.id));
  }

  function pressed(event: KeyboardEvent): void {
    const by: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key === "Enter") choose(current);
    else if (event.key in by) {
      event.preventDefault();
      chosen.value = Math.max(0, Math.min(found.length - 1, current + by[event.key]!));
      list.current?.children[chosen.value]?.scrollIntoView({ block: "nearest" });
    }
  }

  return (
    <Dialog title="Actions" close={close}>
      <div class="palette">
        <input
          autofocus
          role="combobox"
          aria-label="Action"
          aria-expanded="true"
          aria-controls="actions"
          aria-activedescendant={found[current] ? `action-${found[current].id}` : undefined}
          value={text.value}
          placeholder="What to do"
          onInput={(event) => {
            text.value = event.currentTarget.value;
            chosen.value = 0;
          }}
          onKeyDown={pressed}
        />
        <ul id="actions" role="listbox" aria-label="Actions" ref={list}>
          {found.map((action, place) => (
            <li key={action.id} id={`action-${action.id}`} role="option" aria-selected={place === current} onClick={() => choose(place)}>
              <span>{action.name}</span>
              <span>
                {action.keys.map((key) => (
                  <kbd key={key}>{keyName(key)}</kbd>
                ))}
              </span>
            </li>
          ))}
        </ul>
        {found.length === 0 && <p>No action has this name.</p>}
      </div>
    </Dialog>
  );
}
