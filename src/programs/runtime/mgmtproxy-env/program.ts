import { systemClock } from "#base/clock";
import { ConfigError, durationFlag, integerFlag, optionalFlag, parsedFlag, stringFlag } from "#base/config";
import { callersEnvironment } from "#base/environment";
import { describeError } from "#base/errors";
import { FileError } from "#base/file";
import type { Logger } from "#base/log";
import {
  kubectlApply,
  proxyEnvironment,
  readOffSwitch,
  runCommand,
  runningPid,
  startDetached,
  systemdDropIn,
  watchStaleness,
  writePid,
  writeSentinel,
} from "#features/uplink-proxy";
import { logFlags, loggerOf } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import { environmentFlags, environmentOptions, nodeAddress } from "./flags.ts";

const VERBS = ["print", "run", "launch", "sentinel", "enabled", "systemd-dropin", "watch", "apply"] as const;
type Verb = (typeof VERBS)[number];

const flags = {
  ...environmentFlags,
  name: stringFlag("name", "k3s-containerd", "launch: name of the runtime, used in the log", "NAME"),
  pidFile: optionalFlag(
    "pid-file",
    "launch: PID file; launch does nothing while its process runs, and writes the file after a start",
    "FILE",
  ),
  logFile: optionalFlag("log-file", "launch: append the runtime's output to this file", "FILE"),
  pid: integerFlag("pid", 0, "sentinel: the runtime's process", { min: 0, max: 4194304 }),
  interval: durationFlag("interval", "15s", "watch: how often to compare", { min: "1s", max: "1h" }),
  onNodeIPChange: stringFlag(
    "on-node-ip-change",
    "never",
    "watch: a command that `sh -c` runs when the recorded NO_PROXY is stale",
    "COMMAND",
  ),
  debounce: durationFlag("debounce", "30s", "watch: how long NO_PROXY must be stale before the command runs", {
    max: "24h",
  }),
  healthzURL: stringFlag(
    "healthz-url",
    "http://127.0.0.1:5443/healthz",
    "watch: URL of the proxy's /healthz, for the number of tunnels",
    "URL",
  ),
  started: parsedFlag("started", parseTime, "sentinel: when the runtime was started; default now", "TIME"),
  ...logFlags,
};

/** `mgmtproxy-env` (docs/spec/uplink-proxy.md#10 and #11). */
export const mgmtproxyEnv = defineProgram({
  name: "mgmtproxy-env",
  summary:
    "Makes programs use the uplink proxy: prints the proxy variables, runs commands with them, records the variables of a runtime.",
  words: { usage: `[${VERBS.join(" | ")}] [-- COMMAND...]`, max: Number.POSITIVE_INFINITY },
  flags,
  notes: [
    [
      "print            HTTPS_PROXY and NO_PROXY, a line each; both empty if the off-switch is on (default)",
      "run -- COMMAND   runs COMMAND with the variables, or without them if the off-switch is on; the exit status is the command's",
      "launch -- COMMAND starts a container runtime in the background, records and logs its variables; does nothing while the runtime runs",
      "sentinel         only writes the record, for a runtime that another program started (--pid)",
      "enabled          exit code 0, or 1 if the off-switch is on",
      "systemd-dropin   prints a systemd drop-in that sets the variables for a service",
      "apply PATH       kubectl apply -f PATH; an https:// address is fetched through the proxy, unless the off-switch is on",
      "watch            logs when the record's NO_PROXY no longer covers the node's address",
    ].join("\n"),
  ],
  run: async ({ values, words, signal }) => {
    const log = loggerOf("mgmtproxy-env", { ...values, logEncoder: "console" });
    const [word = "print", ...command] = words;
    const verb = VERBS.find((one) => one === word);
    if (verb === undefined)
      throw new ConfigError("invalid-flags", [`unexpected "${word}": it must be one of ${VERBS.join(", ")}`]);
    checkCommand(verb, command);
    const options = environmentOptions(values);
    const { isEnabled } = await readOffSwitch(values.flag, { log });
    const env = proxyEnvironment(options);
    switch (verb) {
      case "print":
        return print(
          isEnabled ? `HTTPS_PROXY=${env.HTTPS_PROXY}\nNO_PROXY=${env.NO_PROXY}\n` : "HTTPS_PROXY=\nNO_PROXY=\n",
        );
      case "enabled":
        print(isEnabled ? "enabled\n" : `disabled via ${values.flag}\n`);
        return isEnabled ? EXIT.ok : EXIT.failed;
      case "systemd-dropin":
        return print(systemdDropIn(env));
      case "run": {
        const shown = command.join(" ");
        if (isEnabled) log.info(`mgmtproxy_run: routing through proxy (${env.HTTPS_PROXY}): ${shown}`);
        else log.info(`mgmtproxy_run: bypassing proxy (disabled via ${values.flag}): ${shown}`);
        return runCommand(command, { ...callersEnvironment(process.env), ...(isEnabled ? env : {}) }, { signal });
      }
      case "launch": {
        const running = values.pidFile === undefined ? undefined : runningPid(values.pidFile, command[0] ?? "");
        if (running !== undefined) {
          log.info(`${values.name} is running already`, { pid: running });
          return EXIT.ok;
        }
        const pid = await startDetached(
          command,
          { ...callersEnvironment(process.env), ...(isEnabled ? env : {}) },
          values,
        );
        if (values.pidFile !== undefined) writePid(values.pidFile, pid);
        record(values, log, { pid, started: new Date(), env: isEnabled ? env : undefined });
        const how = isEnabled
          ? `HTTPS_PROXY=${env.HTTPS_PROXY} NO_PROXY=${env.NO_PROXY}`
          : `(mgmtproxy disabled via ${values.flag})`;
        log.info(`Started ${values.name} at pid:${pid} ${how}`);
        return EXIT.ok;
      }
      case "sentinel":
        if (values.pid === 0) throw new ConfigError("invalid-flags", ["sentinel needs --pid, the runtime's process"]);
        record(values, log, {
          pid: values.pid,
          started: values.started ?? new Date(),
          env: isEnabled ? env : undefined,
        });
        return EXIT.ok;
      case "apply":
        return print(
          await kubectlApply(command[0] ?? "", { log, flag: values.flag, proxyURL: env.HTTPS_PROXY, signal }),
        );
      case "watch":
        await watchStaleness(
          {
            log,
            clock: systemClock,
            nodeIP: () => nodeAddress(values)?.address,
            activeTunnels: () => activeTunnels(values.healthzURL, signal),
          },
          {
            sentinel: values.sentinel,
            intervalMs: values.interval,
            command: values.onNodeIPChange === "never" ? undefined : values.onNodeIPChange,
            debounceMs: values.debounce,
            signal,
          },
        );
        return EXIT.ok;
    }
  },
});

function checkCommand(verb: Verb, command: readonly string[]): void {
  const takesCommand = verb === "run" || verb === "launch";
  if (takesCommand && command.length === 0)
    throw new ConfigError("invalid-flags", [`${verb} needs a command: ${verb} -- COMMAND...`]);
  if (verb === "apply") {
    if (command.length !== 1) throw new ConfigError("invalid-flags", ["apply needs one file or address: apply PATH"]);
    return;
  }
  if (!takesCommand && command.length > 0)
    throw new ConfigError("invalid-flags", [`unexpected "${command.join(" ")}" after ${verb}`]);
}

/** Writes the record. If that fails, logs the failure; the runtime then starts without a record. */
function record(
  values: { readonly sentinel: string; readonly flag: string },
  log: Logger,
  sentinel: Parameters<typeof writeSentinel>[1],
): void {
  try {
    writeSentinel(values.sentinel, sentinel, values.flag);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    log.warn("cannot write the record of the container runtime's environment variables", {
      path: values.sentinel,
      error: describeError(error),
    });
  }
}

async function activeTunnels(url: string, signal: AbortSignal): Promise<number> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.any([signal, AbortSignal.timeout(2000)]) });
    const body = (await answer.json()) as { activeTunnels?: unknown };
    return typeof body.activeTunnels === "number" ? body.activeTunnels : 0;
  } catch {
    // Without a proxy there are no tunnels, so a restart ends no connection.
    return 0;
  }
}

function parseTime(text: string): Date {
  const time = new Date(text);
  if (Number.isNaN(time.getTime()))
    throw new ConfigError("invalid-value", [`"${text}" is not a time such as 2026-05-04T23:28:24Z`]);
  return time;
}

function print(text: string): number {
  process.stdout.write(text);
  return EXIT.ok;
}
