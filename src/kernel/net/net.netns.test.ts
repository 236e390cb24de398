import { kernelContract } from "#kernel/contract";
import { openKernel } from "./index.ts";

// Features that this tier's kernel lacks are tested by the same suite in the vm tier (test/vm).
const MISSING: readonly string[] = ["fou", "ipip", "ip6tnl", "dummy"];
kernelContract({ label: "real", kernel: openKernel(), has: (feature) => !MISSING.includes(feature) });
