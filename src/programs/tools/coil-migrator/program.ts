import { systemClock } from "#base/clock";
import { ConfigError, durationFlag, optionalFlag, switchFlag, TIMER_MAX } from "#base/config";
import type { Logger } from "#base/log";
import { dump, EtcdClient, MigratorError, parseExport, readSnapshot, replace } from "#features/migrator";
import { kubeFlags, logFlags, loggerOf, openClient } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import { type EtcdValues, etcdFlags, etcdOptions, prefixOf } from "./etcd-flags.ts";
import { askLine, readInput } from "./read-input.ts";

const flags = {
  skipUninstall: switchFlag(
    "skip-uninstall",
    false,
    "dump: leave Coil v1 installed; Coil v1 can then change its data after the dump",
  ),
  inputFile: optionalFlag("input-file", "dump: an export of etcd instead of etcd itself; - is standard input", "FILE"),
  ...etcdFlags,
  yes: switchFlag("yes", false, "replace: do not ask for a confirmation"),
  interval: durationFlag("interval", "10s", "replace: the pause between two nodes", { max: TIMER_MAX }),
  ...kubeFlags,
  ...logFlags,
};

interface Values extends EtcdValues {
  readonly skipUninstall: boolean;
  readonly inputFile: string | undefined;
  readonly prefix: string;
  readonly kubeconfig: string | undefined;
  readonly yes: boolean;
  readonly interval: number;
}

/** `coil-migrator` (docs/spec/pod-network.md#14). */
export const coilMigrator = defineProgram({
  name: "coil-migrator",
  summary: "Moves a cluster from Coil v1 to v2: writes the data of v1 as manifests, and replaces the pods of v1.",
  words: { usage: "dump | replace", max: 1 },
  flags,
  notes: [
    [
      "dump     deletes v1's objects, annotates each namespace with the pool of the same name, prints AddressPools and reserved AddressBlocks as YAML",
      "replace  to be run when v2 runs: deletes the pods of v1 node by node, then the reserved blocks, then the pods of coild",
    ].join("\n"),
    "Both can be run again at any time. Exit code 1: a step failed; the last lines of the log name it.",
    "Environment: COIL_ETCD_PASSWORD, the password of etcd's user where --etcd-password is not given.",
    "--input-file takes the output of `etcdctl get --prefix /coil/ -w json`, made after v1 was stopped.",
  ],
  run: async ({ values, words, signal }) => {
    const log = loggerOf("coil-migrator", { ...values, logEncoder: "console" });
    const [verb] = words;
    switch (verb) {
      case "dump":
        return runDump(values, log, signal);
      case "replace":
        return runReplace(values, log, signal);
      default: {
        const found = verb === undefined ? "a command is missing" : `unexpected "${verb}"`;
        throw new ConfigError("invalid-flags", [`${found}: the command must be dump or replace`]);
      }
    }
  },
});

async function runDump(values: Values, log: Logger, signal: AbortSignal): Promise<number> {
  const prefix = prefixOf(values.prefix);
  const { inputFile } = values;
  using etcd =
    inputFile === undefined ? new EtcdClient({ clock: systemClock, log }, etcdOptions(values, process.env)) : undefined;
  const exported = inputFile === undefined ? [] : parseExport(await readInput(inputFile, signal));
  const read = async () => (etcd === undefined ? exported : readSnapshot(etcd, prefix, { signal }));
  await using api = await openClient("coil-migrator", values, { clock: systemClock });
  const deps = { api, clock: systemClock, log, read };
  const options = { prefix, uninstall: !values.skipUninstall, isExport: etcd === undefined, signal };
  try {
    const { manifests, failures } = await dump(deps, options);
    process.stdout.write(manifests);
    return report(log, failures);
  } catch (error) {
    if (!(error instanceof MigratorError) || error.faults.length === 0) throw error;
    report(log, error.faults);
    throw error;
  }
}

async function runReplace(values: Values, log: Logger, signal: AbortSignal): Promise<number> {
  await using api = await openClient("coil-migrator", values, { clock: systemClock });
  if (!values.yes) {
    const question = `Delete every pod of Coil v1 on ${api.connection.server.origin}, node by node? y/N `;
    const answer = (await askLine(question, signal)).trim().toLowerCase();
    if (answer !== "y" && answer !== "yes") {
      log.info("nothing was changed");
      return EXIT.failed;
    }
  }
  return report(log, await replace({ api, clock: systemClock, log }, { intervalMs: values.interval, signal }));
}

/** Logs each failure and returns the exit code. Called when all other steps have ended. */
function report(log: Logger, failures: readonly string[]): number {
  for (const failure of failures) log.error(failure);
  if (failures.length === 0) return EXIT.ok;
  log.error("some steps failed; remove their causes and run the same command again", {
    failures: failures.length,
  });
  return EXIT.failed;
}
