import { durationFlag, integerFlag } from "#base/config";
import { serveBackend } from "#lab/backend";
import { defineProgram, EXIT } from "../../shared/program/index.ts";

const flags = {
  port: integerFlag("port", 8080, "listen address", { min: 1, max: 65_535 }),
  linger: durationFlag("linger", "3s", "how long to accept after SIGTERM"),
};

/** The server that runs in the pods behind a lab's Services. */
export const labBackend = defineProgram({
  name: "lab-backend",
  summary: "A server in the pods of a lab's Services. `isthmus lab --services` starts it.",
  flags,
  run: async ({ values, signal }) => {
    await serveBackend({ port: values.port, lingerMs: values.linger }, { signal });
    return EXIT.ok;
  },
});
