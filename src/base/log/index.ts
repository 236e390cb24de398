/**
 * Structured logs: one line of JSON for each event, with the field names that Coil's users already parse
 * (`level`, `ts`, `logger`, `msg`; docs/spec/pod-network.md#16). Loggers are passed in, never global.
 *
 * ```ts
 * const log = createLogger({ name: "coild" });
 * log.child("ipam").info("block acquired", { pool: "default", block: "default-3" });
 * ```
 */
import { pino } from "pino";
import { describeError } from "#base/errors";
import { printable } from "#base/text";
import { standardError } from "./standard-error.ts";

export { Repeats } from "./repeats.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFields = Readonly<Record<string, unknown>>;

export interface Logger {
  debug(message: string, fields?: LogFields): void;
  /** Logs a change that an operator should know. A pass without changes logs nothing at this level. */
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** Returns true if lines of a level are written. Call this first if the text of a line takes long to make. */
  isEnabled(level: LogLevel): boolean;
  /** A logger whose `logger` field is `<parent>.<name>` and whose lines all carry `fields`. */
  child(name: string, fields?: LogFields): Logger;
}

export interface LoggerOptions {
  /** The `logger` field. */
  readonly name: string;
  /** Default `info`. */
  readonly level?: LogLevel;
  /**
   * `json` (default), or `console`: one readable line. In both a call is one line, whatever the values: characters that begin lines, draw on a
   * terminal or reverse text are escaped, as in JSON.
   */
  readonly encoder?: "json" | "console";
  /** Default: iso8601. `epoch` is seconds with a fraction. */
  readonly timeEncoding?: "iso8601" | "epoch" | "millis";
  /** Writes one line. Default: to standard error. */
  readonly write?: (line: string) => void;
}

/**
 * Makes a program's root logger. A line is handed to the kernel at once, so that none is lost when the program ends, unless standard error is a pipe or a socket that is
 * full: then up to a MiB of lines waits, further ones are dropped, and a line tells how many.
 */
export function createLogger(options: LoggerOptions): Logger {
  const onDropped = (lines: number): void =>
    root.warn("lines of this log were dropped, because standard error was not read", { lines });
  const sink = options.write ?? standardError(onDropped);
  const time = options.timeEncoding ?? "iso8601";
  const console = options.encoder === "console";
  const base = pino(
    {
      base: null,
      level: options.level ?? "info",
      messageKey: "msg",
      timestamp: () => `,"ts":${timestamp(time)}`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: (value: unknown) => (value instanceof Error ? describeError(value) : value) },
    },
    // A line of JSON ends with its only line feed; what is escaped in it stands inside of strings.
    { write: (line: string) => sink(console ? readable(line) : `${printable(line.slice(0, -1))}\n`) },
  );
  const root = wrap(base, options.name);
  return root;
}

/** A logger that writes nothing. */
export const nullLogger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  isEnabled: () => false,
  child: () => nullLogger,
};

function wrap(base: pino.Logger, name: string): Logger {
  const bound = base.child({ logger: name });
  const at =
    (level: LogLevel) =>
    (message: string, fields: LogFields = {}): void =>
      bound[level](fields, message);
  return {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
    isEnabled: (level) => bound.isLevelEnabled(level),
    child: (child, fields = {}) => wrap(base.child(fields), `${name}.${child}`),
  };
}

function timestamp(encoding: "iso8601" | "epoch" | "millis"): string {
  const now = Date.now();
  if (encoding === "epoch") return (now / 1000).toFixed(3);
  if (encoding === "millis") return String(now);
  return `"${new Date(now).toISOString()}"`;
}

function readable(line: string): string {
  const { level, ts, logger, msg, ...rest } = JSON.parse(line) as Record<string, unknown>;
  const fields = Object.entries(rest).map(
    ([key, value]) => ` ${key}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return `${printable(`${ts} ${String(level).toUpperCase()} ${logger}: ${msg}${fields.join("")}`)}\n`;
}
