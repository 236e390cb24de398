import { hostname } from "node:os";
import { ConfigError, choiceFlag, optionalFlag, parsedFlag, stringFlag, switchFlag } from "#base/config";
import { createLogger, type Logger, type LogLevel } from "#base/log";
import { Counter, Gauge, Histogram, type Registry, startAtZero } from "#base/metrics";
import { KubeClient, type KubeClientOptions, loadKubeConfig } from "#kube/client";
import { VERSION } from "./run-program.ts";

/** Which API server. */
export const kubeFlags = {
  kubeconfig: optionalFlag(
    "kubeconfig",
    "credentials of the API server; else $KUBECONFIG, the pod's own, ~/.kube/config",
    "FILE",
  ),
};

/** Logging, as the programs that ours replace spell it. */
export const logFlags = {
  logLevel: stringFlag("zap-log-level", "info", "debug, info, warn, error, or a number: 1 and more is debug", "LEVEL"),
  logDevel: switchFlag("zap-devel", false, "readable lines at debug level"),
  logEncoder: choiceFlag("zap-encoder", ["json", "console"], "json", "format of the log"),
  logStacktrace: stringFlag(
    "zap-stacktrace-level",
    "error",
    "accepted for compatibility; errors always tell their causes",
    "LEVEL",
  ),
  logTime: choiceFlag(
    "zap-time-encoding",
    ["iso8601", "epoch", "millis", "nano", "rfc3339", "rfc3339nano"],
    "iso8601",
    "format of `ts`",
  ),
  verbosity: parsedFlag("v", parseVerbosity, "verbosity as klog has it: 1 and more is debug", "N"),
};

interface LogValues {
  readonly logLevel: string;
  readonly logDevel: boolean;
  readonly logEncoder: "json" | "console";
  readonly logTime: "iso8601" | "epoch" | "millis" | "nano" | "rfc3339" | "rfc3339nano";
  readonly verbosity: number | undefined;
}

/** The root logger of a daemon. Throws `ConfigError` for a level that is none. */
export function loggerOf(name: string, values: LogValues): Logger {
  const debug = values.logDevel || (values.verbosity ?? 0) >= 1;
  const time = values.logTime === "epoch" || values.logTime === "millis" ? values.logTime : "iso8601";
  return createLogger({
    name,
    level: debug ? "debug" : parseLevel(values.logLevel),
    encoder: values.logDevel ? "console" : values.logEncoder,
    timeEncoding: time,
  });
}

/** Opens the client of a program; requests are counted in its registry. Throws `KubeConfigError`. */
export async function openClient(
  program: string,
  values: { readonly kubeconfig: string | undefined; readonly master?: string | undefined },
  options: KubeClientOptions & { readonly registry?: Registry } = {},
): Promise<KubeClient> {
  const connection = await loadKubeConfig({ path: values.kubeconfig, server: values.master });
  const { registry, ...rest } = options;
  const counter =
    registry === undefined
      ? undefined
      : new Counter({
          name: "rest_client_requests_total",
          help: "Number of HTTP requests, partitioned by status code, method, and host.",
          labelNames: ["code", "method", "host"],
          registers: [registry],
        });
  return new KubeClient(connection, {
    userAgent: `${program}/${VERSION} isthmus`,
    onRequest: ({ code, method, host }) => counter?.inc({ code, method, host }),
    ...rest,
  });
}

/** What comes of a reconciliation. */
const RESULTS = ["success", "error", "requeue_after"] as const;

/** The reconcile metrics of controller-runtime, as callbacks of a `Controller`. */
export function controllerMetrics(registry: Registry) {
  const labelNames = ["controller", "result"] as const;
  const total = new Counter({
    name: "controller_runtime_reconcile_total",
    help: "Total number of reconciliations per controller.",
    labelNames,
    registers: [registry],
  });
  const errors = new Counter({
    name: "controller_runtime_reconcile_errors_total",
    help: "Total number of reconciliation errors per controller.",
    labelNames: ["controller"] as const,
    registers: [registry],
  });
  const panics = new Counter({
    name: "controller_runtime_reconcile_panics_total",
    help: "Total number of reconcile panics per controller.",
    labelNames: ["controller"] as const,
    registers: [registry],
  });
  const seconds = new Histogram({
    name: "controller_runtime_reconcile_time_seconds",
    help: "Length of time per reconciliation per controller.",
    labelNames: ["controller"] as const,
    registers: [registry],
  });
  const depth = new Gauge({
    name: "workqueue_depth",
    help: "Current depth of workqueue.",
    labelNames: ["name"],
    registers: [registry],
  });
  return (name: string) => {
    const controller = [name];
    startAtZero(total, { controller, result: RESULTS });
    startAtZero(errors, { controller });
    startAtZero(panics, { controller });
    seconds.zero({ controller: name });
    depth.set({ name }, 0);
    return {
      onDepth: (size: number): void => depth.set({ name }, size),
      onReconcile: (sample: {
        readonly result: (typeof RESULTS)[number];
        readonly bug: boolean;
        readonly durationMs: number;
      }): void => {
        total.inc({ controller: name, result: sample.result });
        if (sample.result === "error") errors.inc({ controller: name });
        if (sample.bug) panics.inc({ controller: name });
        seconds.observe({ controller: name }, sample.durationMs / 1000);
      },
    };
  };
}

/** An identity for leader election: the pod's name where there is one, and something that a restart changes. */
export function electionIdentity(): string {
  return `${process.env["COIL_POD_NAME"] ?? hostname()}_${crypto.randomUUID()}`;
}

function parseLevel(text: string): LogLevel {
  if (/^\d+$/.test(text)) return Number(text) >= 1 ? "debug" : "info";
  if (text === "debug" || text === "info" || text === "warn" || text === "error") return text;
  if (text === "panic" || text === "fatal" || text === "dpanic") return "error";
  throw new ConfigError("invalid-flags", [
    `--zap-log-level: "${text}" is none of debug, info, warn, error or a number`,
  ]);
}

function parseVerbosity(text: string): number {
  if (/^\d{1,3}$/.test(text)) return Number(text);
  throw new ConfigError("invalid-value", [`"${text}" is not a number`]);
}
