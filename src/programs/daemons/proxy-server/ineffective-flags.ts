import { describeIneffective, QUEUES_IN_BYTES } from "../../shared/tunnel/index.ts";

/** One sentence for each given flag of the server that has no effect. */
export function ineffectiveServerFlags(values: {
  readonly xfrChannelSize: number;
  readonly frontendWriteChannelSize: number;
}): string[] {
  return describeIneffective([
    { flag: "xfr-channel-size", value: values.xfrChannelSize, initial: 10, instead: QUEUES_IN_BYTES },
    {
      flag: "frontend-write-channel-size",
      value: values.frontendWriteChannelSize,
      initial: 10,
      instead: QUEUES_IN_BYTES,
    },
  ]);
}
