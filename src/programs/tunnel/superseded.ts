import type { Logger } from "#base/log";

/** A flag of upstream that bounds something which is bounded otherwise here. */
interface Superseded {
  readonly flag: string;
  /** What was given, and what would have been by default. */
  readonly value: number;
  readonly initial: number;
  readonly instead: string;
}

const BYTES = "what waits is bounded in bytes: --conn-buffer-bytes for one connection, --max-buffered-bytes for all";

/** Flags of the agent that are accepted for upstream's sake. */
export function supersededByAgent(values: {
  readonly xfrChannelSize: number;
  readonly probeInterval: number;
}): string[] {
  return lines([
    { flag: "xfr-channel-size", value: values.xfrChannelSize, initial: 150, instead: BYTES },
    {
      flag: "probe-interval",
      value: values.probeInterval,
      initial: 1000,
      instead: "a link that has ended is noticed at once, and a silent one by --keepalive-time",
    },
  ]);
}

/** Flags of the server that are accepted for upstream's sake. */
export function supersededByServer(values: {
  readonly xfrChannelSize: number;
  readonly frontendWriteChannelSize: number;
}): string[] {
  return lines([
    { flag: "xfr-channel-size", value: values.xfrChannelSize, initial: 10, instead: BYTES },
    { flag: "frontend-write-channel-size", value: values.frontendWriteChannelSize, initial: 10, instead: BYTES },
  ]);
}

/** Says once, at the start, what was given in vain. */
export function logSuperseded(log: Logger, flags: readonly string[]): void {
  if (flags.length > 0) log.info("flags that change nothing here", { flags });
}

function lines(flags: readonly Superseded[]): string[] {
  return flags
    .filter(({ value, initial }) => value !== initial)
    .map(({ flag, instead }) => `--${flag} changes nothing: ${instead}`);
}
