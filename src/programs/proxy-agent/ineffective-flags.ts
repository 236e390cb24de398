import { describeIneffective, QUEUES_IN_BYTES } from "../tunnel/index.ts";

/** One sentence for each given flag of the agent that has no effect. */
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
