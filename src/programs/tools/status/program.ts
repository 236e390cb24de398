import { systemClock } from "#base/clock";
import { ConfigError, type Flag, optionalFlag, switchFlag } from "#base/config";
import { describeError } from "#base/errors";
import { repeat } from "#base/reconcile";
import { printable } from "#base/text";
import { suiteStatus, suiteStatusText } from "#features/suite-report";
import type { KubeClient } from "#kube/client";
import { kubeFlags, openClient } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import { readSuite } from "./read.ts";

/** The seconds between two screens, and their limits. */
const WATCH_SECONDS = 5;
const MAX_SECONDS = 3600;

/** A switch that takes a number too. */
const watch: Flag<number | undefined> = {
  name: "watch",
  help: `draw the status again every SECONDS, 1 to ${MAX_SECONDS}; --watch alone: ${WATCH_SECONDS}`,
  placeholder: undefined,
  defaultText: undefined,
  initial: undefined,
  parse: (text) => {
    if (text === "true") return WATCH_SECONDS;
    if (text === "false") return undefined;
    const seconds = /^\d{1,4}$/.test(text) ? Number(text) : 0;
    if (seconds < 1 || seconds > MAX_SECONDS)
      throw new ConfigError("invalid-value", [`"${text}" is not a number of seconds from 1 to ${MAX_SECONDS}`]);
    return seconds;
  },
};

const flags = {
  watch,
  json: switchFlag("json", false, "print one JSON object; with --watch one in each line"),
  namespace: optionalFlag(
    "namespace",
    "the namespace of the programs and their Leases; default: kube-system, and routers of Egresses in all",
    "NAME",
  ),
  ...kubeFlags,
};

/** `isthmus status`: the whole suite of a cluster on one screen. */
export const status = defineProgram({
  name: "status",
  summary:
    "Shows the whole suite of a cluster on one screen: programs, versions, readiness, pools, tunnel, egresses, NICs, last errors.",
  flags,
  notes: [
    "It reads the API server: Nodes, the Pods with the labels of the suite's manifests, pools, blocks, Egresses, Services, NicClaims, Leases, and the warnings that programs of the suite wrote. Programs tell their parts, versions and use by /readyz?verbose and /metrics: pods are asked through the API server (the right get on pods/proxy), processes of this machine directly.",
    "It asks at most 200 programs, 16 at a time, for at most 10 seconds; those that are not ready go first. Each list has at most 20 rows, and the number of the others. What these credentials may not read is named with the right that is missing; parts that the cluster does not have are left out.",
    "On a node it also names packet filters of others that drop what the node forwards for pods, with the commands that let it pass, as `isthmus doctor` does; that needs root.",
    "--json: one object with ready, time, server, nodes, programs, notReady, degraded, forwardDrops, pools, requests, services, networkPolicies, tunnel, uplinks, egresses, nics, leaders, errors and notRead; a list is {rows, more}. A part that could not be read is missing, and named in notRead.",
    "Exit code: 0 when all that was found is ready; 1 when a program, a router or a leader is not, when the Pods could not be read, or when the API server does not answer. Parts that do not work in programs that are ready, and packet filters, do not change it. --watch ends with 0 at SIGINT.",
  ],
  run: async ({ values, signal }) => {
    await using api = await openClient("status", values, { clock: systemClock });
    if (values.watch === undefined) {
      const { text, isReady } = await screen(api, values, signal);
      process.stdout.write(text);
      return isReady ? EXIT.ok : EXIT.failed;
    }
    // A terminal shows one screen; a file gets them all.
    const start = process.stdout.isTTY && !values.json ? CLEAR : "";
    const draw = async (): Promise<void> => {
      const { text } = await screen(api, values, signal);
      process.stdout.write(`${start}${text}`);
    };
    await repeat(draw, {
      signal,
      everyMs: values.watch * 1000,
      clock: systemClock,
      onFailure: (error) => process.stderr.write(`status: ${printable(describeError(error))}\n`),
    });
    return EXIT.ok;
  },
});

/** Moves the cursor to the top left and clears the screen (ECMA-48). */
const CLEAR = "\u001b[H\u001b[2J";

async function screen(
  api: KubeClient,
  { json, namespace }: { readonly json: boolean; readonly namespace: string | undefined },
  signal: AbortSignal,
): Promise<{ readonly text: string; readonly isReady: boolean }> {
  const status = suiteStatus(await readSuite(api, { clock: systemClock }, { signal, namespace }));
  return { text: json ? `${JSON.stringify(status)}\n` : suiteStatusText(status), isReady: status.ready };
}
