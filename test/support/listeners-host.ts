/** A process in which all of {@link LISTENERS} listen, so that its memory is theirs. Tells its parent where they are, by name, and collects garbage when it is told to. */
import { LISTENERS, type Place } from "./listeners.ts";

const [folder = ""] = process.argv.slice(2);
process.once("disconnect", () => process.exit());
const places: Record<string, Place> = {};
for (const { name, start } of LISTENERS) {
  const { port, path, behind } = await start(folder);
  places[name] = {
    ...(port === undefined ? {} : { port }),
    ...(path === undefined ? {} : { path }),
    ...(behind === undefined ? {} : { behind }),
  };
}
process.on("message", () => {
  globalThis.gc?.();
  process.send?.("done");
});
process.send?.(places);
