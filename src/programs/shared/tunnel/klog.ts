import { ConfigError, type Flag, type FlagValues } from "#base/config";
import { createLogger, type Logger } from "#base/log";
import { ignoredKlogFlags, logIgnored } from "../ignored-flags/index.ts";
import { sayOpenFiles } from "../open-files/index.ts";

/** The klog verbosity from which debug lines are written. */
const DEBUG_VERBOSITY = 4;

const verbosity: Flag<number> = {
  name: "v",
  help: `verbosity as in klog; ${DEBUG_VERBOSITY} and more: debug lines`,
  placeholder: "N",
  defaultText: "0",
  initial: 0,
  parse(text) {
    if (/^\d{1,9}$/.test(text)) return Number(text);
    throw new ConfigError("invalid-value", [`"${text}" is not a whole number`]);
  },
};

/** `-v`, `--v` and klog's other flags (docs/spec/tunnel.md#14). */
export const klogFlags = { verbosity, ...ignoredKlogFlags };

/** The program's logger. Logs once for how many connections the open files are enough, and which ignored flags of klog were given. */
export function klogLogger(name: string, values: FlagValues<typeof klogFlags>): Logger {
  const log = createLogger({ name, level: values.verbosity >= DEBUG_VERBOSITY ? "debug" : "info" });
  sayOpenFiles(log);
  logIgnored(log, ignoredKlogFlags, values);
  return log;
}
