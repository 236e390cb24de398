import { describeIneffective, QUEUES_IN_BYTES } from "../tunnel/index.ts";

/** The given flags of the agent that have no effect, a sentence each. */
export function ineffectiveAgentFlags(values: {
  readonly xfrChannelSize: number;
  readonly probeInterval: number;
}): string[] {
  return describeIneffective([
    { flag: "xfr-channel-size", value: values.xfrChannelSize, initial: 150, instead: QUEUES_IN_BYTES },
    {
      flag: "probe-interval",
      value: values.probeInterval,
      initial: 1000,
      instead: "a link that has ended is detected at once, and a silent one by --keepalive-time",
    },
  ]);
}
