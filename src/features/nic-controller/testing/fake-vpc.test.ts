import { systemClock } from "#base/clock";
import { providerContract } from "#cloud/vpc-contract";
import { FakeVpc } from "./fake-vpc.ts";

providerContract("the fake cloud", async () => {
  const provider = new FakeVpc(systemClock);
  return {
    provider,
    vpc: "vpc-1",
    projectId: "p",
    freeIp: "10.200.0.1",
    group: "web",
    host: "node-1",
    setAway: (isAway) => {
      provider.isAway = isAway;
    },
    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  };
});
