import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { addressFlag, ConfigError } from "#base/config";
import { endpoints, NO_ESTATE } from "#base/estate";
import { Health } from "#base/health";
import { Counter, createRegistry, type Registry } from "#base/metrics";
import { logFlags, loggerOf } from "../../shared/daemon/index.ts";
import { type Part, startParts } from "../../shared/daemon-kit/index.ts";
import { metricsFromFlag, serveHealth, serveMetrics } from "../../shared/http-endpoints/index.ts";
import { requireOpenFiles, sayOpenFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT, type Program, parseProgram } from "../../shared/program/index.ts";
import { splitCommandLines } from "./command-lines.ts";
import { type SupervisedPart, supervise } from "./supervise.ts";

const flags = {
  metricsAddr: addressFlag("metrics-addr", ":9390", "address of /metrics of the process; each part also has its own"),
  ...metricsFromFlag,
  healthAddr: addressFlag(
    "health-addr",
    ":9391",
    "address of /healthz and /readyz of the process; each part also has its own",
  ),
  ...logFlags,
};

/** Open files of the process, and of each part, at rest and with all connections of their ports for metrics and health. */
const FILES = 48;
const FILES_OF_PART = 24;

/** Programs by name. A call of the function loads the program. */
type Listed = ReadonlyMap<string, () => Promise<Program>>;

/** `node`: the programs of a node as one process (docs/design/node.md). `listed` has the programs that it can run. */
export function nodeProgram(listed: Listed): Program {
  return defineProgram({
    name: "node",
    summary:
      "Runs the programs of a node in one process, which needs less memory. Each has its own flags, health and metrics.",
    words: { usage: "PROGRAM [FLAGS] [-- PROGRAM [FLAGS]]...", max: Number.POSITIVE_INFINITY, stopAtFirst: true },
    flags,
    secondSignal: "hurry",
    metrics: [nodeMetrics],
    estate: () => ({ ...NO_ESTATE, sections: [endpoints(":9390", ":9391")] }),
    notes: [
      `Programs: ${[...listed.keys()].join(", ")}.`,
      "A program that ends or fails is started again after a pause; the other programs continue.",
    ],
    run: async ({ values, words, signal, hurry }) => {
      const parts = await loadParts(listed, words, hurry);
      requireOpenFiles(FILES + parts.length * FILES_OF_PART);
      const log = loggerOf("node", values);
      sayOpenFiles(log);
      const registry = createRegistry();
      const restarts = nodeMetrics(registry);
      const health = new Health({ log: log.child("health") });
      await using _metrics = await serveMetrics({ registry, log }, values);
      await using _health = await serveHealth({ health, log }, { address: values.healthAddr });
      const group = new TaskGroup(signal);
      const codes: number[] = [];
      const supervised = parts.map((part): Part => {
        const { name } = part;
        restarts.inc({ part: name }, 0);
        const onRestart = (): void => restarts.inc({ part: name });
        const deps = { health: health.part(name, { needed: "always" }), log, clock: systemClock, onRestart };
        return {
          name,
          run: async (at) => {
            codes.push(await supervise(part, deps, at));
          },
        };
      });
      startParts(supervised, group);
      log.info("started", { parts: parts.map(({ name }) => name) });
      await group.wait();
      log.info("ended");
      return Math.max(EXIT.ok, ...codes);
    },
  });
}

/** Declares the metric of the process itself. */
function nodeMetrics(registry: Registry): Counter<"part"> {
  return new Counter({
    name: "isthmus_node_part_restarts_total",
    help: "How often a part of the process was started again.",
    labelNames: ["part"],
    registers: [registry],
  });
}

/** Loads the programs and reads their command lines. Throws `ConfigError` with the faults of all command lines. */
async function loadParts(listed: Listed, words: readonly string[], hurry: AbortSignal): Promise<SupervisedPart[]> {
  const faults: string[] = [];
  const parts: SupervisedPart[] = [];
  for (const { name, argv } of splitCommandLines(words, [...listed.keys()])) {
    const program = await listed.get(name)?.();
    if (program === undefined) continue;
    try {
      const { values, words: rest, given } = parseProgram(program, argv);
      const run = async (signal: AbortSignal): Promise<number> =>
        (await program.run({ values, words: rest, given, signal, hurry, ownsProcess: false })) ?? EXIT.ok;
      parts.push({ name, run });
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      faults.push(...error.faults.map((fault) => `${name}: ${fault}`));
    }
  }
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  return parts;
}
