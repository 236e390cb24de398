/**
 * The API server of `scale`, a separate process, so that its memory and time are not counted. Listens on loopback here and inside the
 * network namespace that its argument names. It counts requests by the user of their token; each program has a token of its own.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { type RequestAttributes, startApiServer, type UserInfo } from "#lab/api-server";
import { clusterObjects, type Sizes } from "./scale.objects.ts";
import type { Quantiles } from "./service-sync.measure.ts";

const PORT = 6443;
/** The users with credentials: the bench itself, and the measured programs. */
export const USERS = ["bench", "coil-ipam-controller", "coil-router", "coild"] as const;
export type User = (typeof USERS)[number];

/** Orders of the parent; each is answered by one {@link Answer} in the same order. */
export type Order = { readonly do: "seed"; readonly sizes: Sizes } | { readonly do: "counts" };
/** Kubeconfigs by user, sent once at the start; then the answers to orders. */
export type Answer =
  | { readonly kubeconfigs: Readonly<Record<User, string>> }
  | { readonly seeded: number; readonly rssMiB: number }
  | { readonly counts: Counts; readonly stallMs: Quantiles };
/** Requests since the start, by user, then by `verb resource`. */
export type Counts = Readonly<Record<string, Readonly<Record<string, number>>>>;

if (import.meta.main) await main();

async function main(): Promise<void> {
  const [name = ""] = process.argv.slice(2);
  process.once("disconnect", () => process.exit(0));
  using netns = openNetNs({ name });
  const counts: Record<string, Record<string, number>> = {};
  const count = ({ name: user }: UserInfo, { verb, resource, subresource }: RequestAttributes): void => {
    const key = `${verb} ${resource}${subresource === "" ? "" : `/${subresource}`}`;
    counts[user] = { ...counts[user], [key]: (counts[user]?.[key] ?? 0) + 1 };
  };
  const loop = monitorEventLoopDelay({ resolution: 1 });
  loop.enable();
  const server = await startApiServer({
    listen: [
      { host: "127.0.0.1", port: 0 },
      { fd: listenTcp(IpAddress.parse("127.0.0.1"), PORT, { netns }), host: "127.0.0.1" },
    ],
    tokens: Object.fromEntries(USERS.map((user) => [`token-${user}`, { name: user, groups: [] }])),
    authorizer: {
      authorize: (user, request) => {
        count(user, request);
        return { allowed: true, reason: "" };
      },
      rulesFor: () => ({ rules: [], incomplete: true }),
    },
    log: nullLogger,
    clock: systemClock,
  });
  const configOf = (user: User): string =>
    server.kubeconfig({ server: server.urls[user === "bench" ? 0 : 1] ?? "", token: `token-${user}` });
  const answer = (value: Answer): void => void process.send?.(value);
  process.on("message", (order: Order) => {
    if (order.do === "counts") {
      // The time for which a request waits because this process is busy with another request: it has one thread, while a real server has
      // many.
      const stallMs = { p50: loop.percentile(50) / 1e6, p99: loop.percentile(99) / 1e6 };
      loop.reset();
      return answer({ counts, stallMs });
    }
    const seeded = server.seed(clusterObjects(order.sizes));
    answer({ seeded, rssMiB: process.memoryUsage.rss() / 2 ** 20 });
  });
  answer({ kubeconfigs: Object.fromEntries(USERS.map((user) => [user, configOf(user)])) as Record<User, string> });
}
