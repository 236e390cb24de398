/** Loaded into a process of tests by `mutants.ts`: gives one module with one change. ISTHMUS_MUTANT has the change as JSON. */
import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";
import { type Mutant, mutated } from "./mutant-code.ts";

const mutant = JSON.parse(process.env["ISTHMUS_MUTANT"] ?? "null") as (Mutant & { readonly path: string }) | null;
if (mutant === null) throw new Error("ISTHMUS_MUTANT is not set");
const url = pathToFileURL(mutant.path).href;
registerHooks({
  load: (asked, context, next) => {
    const loaded = next(asked, context);
    if (asked !== url) return loaded;
    const code =
      typeof loaded.source === "string" ? loaded.source : new TextDecoder().decode(loaded.source ?? undefined);
    return { ...loaded, source: mutated(code, mutant) };
  },
});
