import { ConfigError, type Flag, type FlagValues } from "#base/config";
import { createLogger, type Logger } from "#base/log";

/** Verbosity from which on klog users expect debug lines. */
const DEBUG_VERBOSITY = 4;

/** Accepts any value and remembers that it was given. */
function ignoredFlag(name: string, placeholder?: string): Flag<boolean> {
  return {
    name,
    // As klog spells them; upstream's programs take dashes alone.
    aliases: name.includes("-") ? [name.replaceAll("-", "_")] : [],
    help: "klog's; accepted and ignored: lines go to standard error as JSON",
    placeholder,
    defaultText: undefined,
    initial: false,
    parse: () => true,
  };
}

const verbosity: Flag<number> = {
  name: "v",
  help: `verbosity as klog has it: ${DEBUG_VERBOSITY} and more is debug`,
  placeholder: "N",
  defaultText: "0",
  initial: 0,
  parse(text) {
    if (/^\d{1,9}$/.test(text)) return Number(text);
    throw new ConfigError("invalid-value", [`"${text}" is not a whole number`]);
  },
};

/** Flags of klog that do nothing here. */
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

/** `-v`, `--v` and the rest of klog's flags (docs/spec/tunnel.md#14). */
export const klogFlags = { verbosity, ...ignored };

/** The program's logger; says once which of klog's flags were given in vain. */
export function klogLogger(name: string, values: FlagValues<typeof klogFlags>): Logger {
  const log = createLogger({ name, level: values.verbosity >= DEBUG_VERBOSITY ? "debug" : "info" });
  const given = Object.entries(ignored).filter(([key]) => values[key as keyof typeof ignored]);
  if (given.length > 0) log.info("flags of klog are ignored", { flags: given.map(([, flag]) => `--${flag.name}`) });
  return log;
}
