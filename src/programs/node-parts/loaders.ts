import type { Program } from "../run-program.ts";

/** A program by its name. Only the one that is called is loaded: each is a file of the bundle, with what it needs. */
export type Programs = Readonly<Record<string, () => Promise<Program>>>;

/** The programs that run on each node, and that `isthmus node` can run together. */
export const NODE_PARTS: Programs = {
  coild: async () => (await import("../coild.ts")).coild,
  "coil-router": async () => (await import("../coil-router.ts")).coilRouter,
  "service-proxy": async () => (await import("../service-proxy.ts")).serviceProxy,
  "proxy-agent": async () => (await import("../proxy-agent.ts")).proxyAgent,
  "uplink-proxy": async () => (await import("../uplink-proxy.ts")).uplinkProxy,
};
