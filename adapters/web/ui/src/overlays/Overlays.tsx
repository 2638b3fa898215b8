/** What lies over every screen: help, actions by name, import. Its buttons stand in the top line. */
import { useSignal } from "@preact/signals";
import { useAction } from "../core/actions";
import { Help } from "./Help";
import { Import } from "./Import";
import { Palette } from "./Palette";

type Shown = "" | "help" | "actions";

export function Overlays() {
  const shown = useSignal<Shown>("");
  const show = (what: Shown) => () => {
    shown.value = what;
  };
  useAction("help", show("help"));
  useAction("actions", show("actions"));
  return (
    <>
      <Import />
      <button onClick={show("actions")}>Actions</button>
      <button onClick={show("help")}>Help</button>
      {shown.value === "help" && <Help close={show("")} />}
      {shown.value === "actions" && <Palette close={show("")} />}
    </>
  );
}
