import { ConfigError, type Flag, type FlagValues } from "#base/config";
import { createLogger, type Logger } from "#base/log";
import { sayOpenFiles } from "../open-files/index.ts";

/** The klog verbosity from which debug lines are written. */
const DEBUG_VERBOSITY = 4;

/** A flag that accepts any value and has no effect. Its value says whether it was given. */
function ignoredFlag(name: string, placeholder?: string): Flag<boolean> {
  return {
    name,
    // klog's own spelling; Konnectivity's programs take only dashes.
    aliases: name.includes("-") ? [name.replaceAll("-", "_")] : [],
    help: "flag of klog, accepted and ignored: the log is written to standard error as JSON",
    placeholder,
    defaultText: undefined,
    initial: false,
    parse: () => true,
  };
}

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

/** Flags of klog without an effect here. */
const ignored = {
  logtostderr: ignoredFlag("logtostderr"),
  alsologtostderr: ignoredFlag("alsologtostderr"),
  stderrthreshold: ignoredFlag("stderrthreshold", "SEVERITY"),
  vmodule: ignoredFlag("vmodule", "PATTERN=N,..."),
  logDir: ignoredFlag("log-dir", "DIR"),
  logFile: ignoredFlag("log-file", "FILE"),
  logFileMaxSize: ignoredFlag("log-file-max-size", "MIB"),
  logBacktraceAt: ignoredFlag("log-backtrace-at", "FILE:LINE"),
  skipHeaders: ignoredFlag("skip-headers"),
  skipLogHeaders: ignoredFlag("skip-log-headers"),
  addDirHeader: ignoredFlag("add-dir-header"),
  oneOutput: ignoredFlag("one-output"),
  alsologtostderrthreshold: ignoredFlag("alsologtostderrthreshold", "SEVERITY"),
  legacyStderrThresholdBehavior: ignoredFlag("legacy-stderr-threshold-behavior"),
};

/** `-v`, `--v` and klog's other flags (docs/spec/tunnel.md#14). */
export const klogFlags = { verbosity, ...ignored };

/** The program's logger. Logs once for how many connections the open files are enough, and which ignored flags of klog were given. */
export function klogLogger(name: string, values: FlagValues<typeof klogFlags>): Logger {
  const log = createLogger({ name, level: values.verbosity >= DEBUG_VERBOSITY ? "debug" : "info" });
  sayOpenFiles(log);
  const given = Object.entries(ignored).filter(([key]) => values[key as keyof typeof ignored]);
  if (given.length > 0) log.info("flags of klog are ignored", { flags: given.map(([, flag]) => `--${flag.name}`) });
  return log;
}
