import { kernelContract } from "#kernel/contract";
import { openKernel } from "./index.ts";

// What this tier's kernel lacks is tested by the same suite in the vm tier (test/vm).
const MISSING: readonly string[] = ["fou", "ipip", "ip6tnl", "dummy"];
kernelContract({ label: "real", kernel: openKernel(), has: (feature) => !MISSING.includes(feature) });
