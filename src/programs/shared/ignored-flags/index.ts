/**
 * Flags of the programs that this suite replaces, which have no effect here (docs/spec/tunnel.md#14.1). They are accepted, so that a
 * manifest of the original works, and the log names those that were given in one line.
 *
 * Owns: klog's flags, the line. Does not know: flags of one program alone.
 */
import { type FlagSet, ignoredFlag, ignoredGiven } from "#base/config";
import type { Logger } from "#base/log";

/** klog's flags but `v`: the log is written to standard error, in one format. klog spells them with underscores, which count as dashes. */
export const ignoredKlogFlags = {
  logtostderr: ignoredFlag("logtostderr"),
  alsologtostderr: ignoredFlag("alsologtostderr"),
  stderrthreshold: ignoredFlag("stderrthreshold", { placeholder: "SEVERITY" }),
  vmodule: ignoredFlag("vmodule", { placeholder: "PATTERN=N,...", instead: "--v" }),
  logDir: ignoredFlag("log-dir", { placeholder: "DIR" }),
  logFile: ignoredFlag("log-file", { placeholder: "FILE" }),
  logFileMaxSize: ignoredFlag("log-file-max-size", { placeholder: "MIB" }),
  logBacktraceAt: ignoredFlag("log-backtrace-at", { placeholder: "FILE:LINE" }),
  skipHeaders: ignoredFlag("skip-headers"),
  skipLogHeaders: ignoredFlag("skip-log-headers"),
  addDirHeader: ignoredFlag("add-dir-header"),
  oneOutput: ignoredFlag("one-output"),
  alsologtostderrthreshold: ignoredFlag("alsologtostderrthreshold", { placeholder: "SEVERITY" }),
  legacyStderrThresholdBehavior: ignoredFlag("legacy-stderr-threshold-behavior"),
};

/** Logs in one line which of these flags were given although they have no effect; nothing if there are none. */
export function logIgnored(log: Logger, flags: FlagSet, values: Readonly<Record<string, unknown>>): void {
  const given = ignoredGiven(flags, values);
  if (given.length > 0) log.info("flags without an effect here were given", { flags: given });
}
