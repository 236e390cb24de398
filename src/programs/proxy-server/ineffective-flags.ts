import { describeIneffective, QUEUES_IN_BYTES } from "../tunnel/index.ts";

/** The given flags of the server that have no effect, a sentence each. */
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
