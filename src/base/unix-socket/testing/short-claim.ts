/** Claims the path of its argument while no descriptor is left, and prints the code of the error. */
import { openSync } from "node:fs";
import { claimSocketPath } from "../index.ts";

// What comes later needs descriptors of its own.
process.stdout.write("");
const { promise, resolve } = Promise.withResolvers<void>();
setImmediate(resolve);
await promise;
try {
  for (;;) openSync("/dev/null", "r");
} catch (error) {
  if ((error as NodeJS.ErrnoException).code !== "EMFILE") throw error;
}
await claimSocketPath(process.argv[2] ?? "", { deleteExisting: true }).then(
  () => process.stdout.write("claimed"),
  (error: unknown) => process.stdout.write(String((error as { readonly code?: unknown }).code)),
);
