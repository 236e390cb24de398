import { kernelContract } from "#kernel/contract";
import { FakeKernel } from "./index.ts";

kernelContract({ label: "fake", kernel: new FakeKernel() });
kernelContract({
  label: "fake without tunnels",
  kernel: new FakeKernel({ lacks: ["fou", "ipip", "ip6tnl", "dummy", "encap"] }),
  has: (feature) => !["fou", "ipip", "ip6tnl", "dummy", "encap"].includes(feature),
});
