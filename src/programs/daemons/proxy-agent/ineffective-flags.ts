import { describeIneffective, QUEUES_IN_BYTES } from "../../shared/tunnel/index.ts";
import { agentFlags } from "./flags.ts";

/** One sentence for each given flag of the agent that has no effect. */
export function ineffectiveAgentFlags(values: {
  readonly xfrChannelSize: number;
  readonly probeInterval: number;
  readonly countServerLeases: boolean;
  readonly leaseLabelSelector: string;
  readonly leaseLabel: string;
}): string[] {
  const { countServerLeases, leaseLabelSelector, leaseLabel } = values;
  const instead = "without --count-server-leases servers are not counted by their Leases";
  const uncounted = countServerLeases
    ? []
    : [
        {
          flag: "lease-label-selector",
          value: leaseLabelSelector,
          initial: agentFlags.leaseLabelSelector.initial,
          instead,
        },
        { flag: "lease-label", value: leaseLabel, initial: "", instead },
      ];
  return describeIneffective([
    ...uncounted,
    { flag: "xfr-channel-size", value: values.xfrChannelSize, initial: 150, instead: QUEUES_IN_BYTES },
    {
      flag: "probe-interval",
      value: values.probeInterval,
      initial: 1000,
      instead: "a link that has ended is detected at once, and a silent one by --keepalive-time",
    },
  ]);
}
