import { ConfigError, choiceFlag, parsedFlag, stringFlag, switchFlag } from "#base/config";
import { createLogger, type Logger, type LogLevel } from "#base/log";
import { ignoredKlogFlags, logIgnored } from "../ignored-flags/index.ts";

/** Flags for logging, with the names that they have in the programs that this suite replaces. */
export const logFlags = {
  logLevel: stringFlag("zap-log-level", "info", "debug, info, warn, error, or a number: 1 and more is debug", "LEVEL"),
  logDevel: switchFlag("zap-devel", false, "write the log as text, at debug level"),
  logEncoder: choiceFlag("zap-encoder", ["json", "console"], "json", "format of the log"),
  logStacktrace: stringFlag("zap-stacktrace-level", "error", "no effect; errors always include their causes", "LEVEL"),
  logTime: choiceFlag(
    "zap-time-encoding",
    ["iso8601", "epoch", "millis", "nano", "rfc3339", "rfc3339nano"],
    "iso8601",
    "format of `ts`",
  ),
  verbosity: parsedFlag("v", parseVerbosity, "verbosity as in klog: 1 and more is debug", "N"),
};

/** {@link logFlags} and klog's flags, which Coil's programs have too. */
export const coilLogFlags = { ...logFlags, ...ignoredKlogFlags };

/** Values of {@link logFlags}. */
export interface LogValues {
  readonly logLevel: string;
  readonly logDevel: boolean;
  readonly logEncoder: "json" | "console";
  readonly logTime: "iso8601" | "epoch" | "millis" | "nano" | "rfc3339" | "rfc3339nano";
  readonly verbosity: number | undefined;
}

/** The root logger of a daemon. Logs once which flags of klog were given that have no effect. Throws `ConfigError` for an unknown level. */
export function loggerOf(name: string, values: LogValues): Logger {
  const debug = values.logDevel || (values.verbosity ?? 0) >= 1;
  const time = values.logTime === "epoch" || values.logTime === "millis" ? values.logTime : "iso8601";
  const log = createLogger({
    name,
    level: debug ? "debug" : parseLevel(values.logLevel),
    encoder: values.logDevel ? "console" : values.logEncoder,
    timeEncoding: time,
  });
  // Only programs with `coilLogFlags` have values of these.
  logIgnored(log, ignoredKlogFlags, { ...values });
  return log;
}

function parseLevel(text: string): LogLevel {
  if (/^\d+$/.test(text)) return Number(text) >= 1 ? "debug" : "info";
  if (text === "debug" || text === "info" || text === "warn" || text === "error") return text;
  if (text === "panic" || text === "fatal" || text === "dpanic") return "error";
  throw new ConfigError("invalid-flags", [
    `--zap-log-level: "${text}" is not one of debug, info, warn, error or a number`,
  ]);
}

function parseVerbosity(text: string): number {
  if (/^\d{1,3}$/.test(text)) return Number(text);
  throw new ConfigError("invalid-value", [`"${text}" is not a number`]);
}
