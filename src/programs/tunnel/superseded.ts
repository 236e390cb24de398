import type { Logger } from "#base/log";

/** A flag of Konnectivity that has no effect here. */
interface Superseded {
  readonly flag: string;
  /** The given value, and the default. */
  readonly value: number;
  readonly initial: number;
  readonly instead: string;
}

const BYTES = "queues are bounded in bytes: --conn-buffer-bytes for one connection, --max-buffered-bytes for all";

/** The given flags of the agent that have no effect, a sentence each. */
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
      instead: "a link that has ended is detected at once, and a silent one by --keepalive-time",
    },
  ]);
}

/** The given flags of the server that have no effect, a sentence each. */
export function supersededByServer(values: {
  readonly xfrChannelSize: number;
  readonly frontendWriteChannelSize: number;
}): string[] {
  return lines([
    { flag: "xfr-channel-size", value: values.xfrChannelSize, initial: 10, instead: BYTES },
    { flag: "frontend-write-channel-size", value: values.frontendWriteChannelSize, initial: 10, instead: BYTES },
  ]);
}

/** Logs them once, at the start. */
export function logSuperseded(log: Logger, flags: readonly string[]): void {
  if (flags.length > 0) log.info("flags without an effect", { flags });
}

function lines(flags: readonly Superseded[]): string[] {
  return flags
    .filter(({ value, initial }) => value !== initial)
    .map(({ flag, instead }) => `--${flag} has no effect: ${instead}`);
}
