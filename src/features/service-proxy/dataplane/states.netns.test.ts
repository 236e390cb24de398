import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { Cidr, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { openConntrack } from "#kernel/conntrack";
import type { Endpoint, ServicePort } from "../model/index.ts";
import { addressBytes } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import {
  addressesOf,
  endpoint,
  ruleOptions,
  type Sender,
  servicePort,
  TARGET_PORT,
  wantedOf,
} from "../testing/fixture.ts";
import { type FrontEndKind, frontEndAddress } from "../testing/matrix.ts";
import { DataPlane, GenerationTracker } from "./index.ts";

/** States in a run; each is synced and asked by every sender at every address. */
const STATES = process.env["ISTHMUS_SOAK"] === "full" ? 10_000 : 40;
const SENDERS = ["pod", "node", "external"] as const;
const KINDS = ["clusterIP", "loadBalancerIP", "externalIP", "nodePort"] as const;
/**
 * Loopback answers in well under a millisecond; nothing within this means dropped, where that is what is wanted. An answer that is wanted is
 * waited for until just before a kernel would send a lost packet again: on a busy machine it comes late, after a loss never.
 */
const DROPPED_MS = 150;
const PATIENCE_MS = 900;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-st-${process.pid}`);
  for (const family of [4, 6] as const) {
    const { localEndpoint, remoteEndpoint } = addressesOf(family);
    await bed.answerUdp("local", localEndpoint, TARGET_PORT);
    await bed.answerUdp("remote", remoteEndpoint, TARGET_PORT);
  }
});
after(() => bed[Symbol.asyncDispose]());

type Condition = "ready" | "terminating" | "down";
const CONDITIONS: Readonly<Record<Condition, Partial<Endpoint>>> = {
  ready: {},
  terminating: { ready: false, serving: true, terminating: true },
  down: { ready: false, serving: false, terminating: false },
};
const condition = fc.constantFrom<Condition | undefined>("ready", "terminating", "down", undefined);
const state = fc.record({
  protocol: fc.constantFrom("TCP" as const, "UDP" as const),
  local: condition,
  remote: condition,
  inner: fc.constantFrom("Cluster" as const, "Local" as const),
  outer: fc.constantFrom("Cluster" as const, "Local" as const),
  allowed: fc.subarray([...SENDERS]),
  hasRanges: fc.boolean(),
  affinitySeconds: fc.constantFrom(0, 60),
});
type State = typeof state extends fc.Arbitrary<infer T> ? T : never;

function sourceOf(family: IpFamily, sender: Sender): Cidr {
  return Cidr.host(addressesOf(family)[sender]);
}

/** The result by the specification (2.2, 2.4), in a model of its own: the machines that may answer, or none. */
function expected(state: State, frontEnd: FrontEndKind, sender: Sender): readonly string[] | "dropped" | "rejected" {
  const { local, remote, inner, outer } = state;
  if (frontEnd === "loadBalancerIP" && state.hasRanges && !state.allowed.includes(sender)) {
    return "dropped";
  }
  const all = Object.entries({ local, remote }).filter(([, one]) => one !== undefined);
  const use = (from: typeof all): string[] => {
    const ready = from.filter(([, one]) => one === "ready");
    return (ready.length > 0 ? ready : from.filter(([, one]) => one === "terminating")).map(([name]) => name);
  };
  const isOuter = frontEnd !== "clusterIP";
  if (!all.some(([, one]) => one !== "down")) return "rejected";
  const isLocal = (isOuter ? outer : inner) === "Local" && !(isOuter && sender !== "external");
  const servers = use(isLocal ? all.filter(([name]) => name === "local") : all);
  return servers.length > 0 ? servers : "dropped";
}

async function found(
  state: State,
  {
    family,
    frontEnd,
    sender,
    droppedMs,
  }: { family: IpFamily; frontEnd: FrontEndKind; sender: Sender; droppedMs: number },
): Promise<string> {
  const { address, port } = frontEndAddress(family, frontEnd);
  if (state.protocol === "TCP") {
    // Reset, for connection tracking is emptied after each state: a server that still had half of a connection of the state before would not take
    // a new one that is masqueraded to the same port.
    const reached = await bed.connect(sender, address, port, { droppedMs, reset: true });
    return reached.kind === "delivered" ? reached.server : reached.kind;
  }
  using flow = await bed.udpFlow(sender, address, port);
  const reached = await flow.ask("?", { droppedMs });
  if (reached.kind === "delivered") return reached.server;
  const [error] = flow.errors;
  if (error === undefined) return reached.kind;
  // What this machine itself sends is not sent where a rule drops or refuses it: the kernel says so at once, and by no other word.
  if (error === "EPERM" && sender === "node") return "not permitted";
  return error === "ECONNREFUSED" ? "rejected" : error;
}

for (const family of [4, 6] as const) {
  test(`DataPlane: in any state packets of every sender to every address go where the specification says, IPv${family}`, async () => {
    const { nft, elements } = bed;
    const options = { ...ruleOptions(family), tableName: "kube-proxy" };
    using flows = openConntrack(bed.netns("node"));
    const plane = new DataPlane(
      { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
      options,
    );
    const { node, serviceCIDR } = addressesOf(family);
    await fc.assert(
      fc.asyncProperty(state, async (one) => {
        const changes: Partial<ServicePort> = {
          protocol: one.protocol,
          internalTrafficPolicy: one.inner,
          externalTrafficPolicy: one.outer,
          affinitySeconds: one.affinitySeconds,
          sourceRanges: one.hasRanges ? one.allowed.map((sender) => sourceOf(family, sender)) : undefined,
        };
        const endpoints = (["local", "remote"] as const).flatMap((where) => {
          const is = one[where];
          return is === undefined ? [] : endpoint(family, where, CONDITIONS[is]);
        });
        await plane.sync(
          {
            services: wantedOf(family, [{ port: servicePort(family, changes), endpoints }]),
            nodePortIPs: new Set([addressBytes(node)]),
            serviceCIDRs: [serviceCIDR],
          },
          { full: true },
        );
        // Flows of the state before, which a client's port may be drawn for again, are the proxy's matter, not the table's.
        await flows.delete({ family });
        for (const frontEnd of KINDS) {
          for (const sender of SENDERS) {
            const wanted = expected(one, frontEnd, sender);
            const droppedMs = wanted === "dropped" ? DROPPED_MS : PATIENCE_MS;
            const is = await found(one, { family, frontEnd, sender, droppedMs });
            const isRight =
              typeof wanted !== "string"
                ? wanted.includes(is)
                : is === wanted || (is === "not permitted" && one.protocol === "UDP");
            assert.ok(isRight, `${sender} to ${frontEnd}: ${is} instead of ${wanted}`);
          }
        }
      }),
      { numRuns: STATES },
    );
    await plane.remove();
  });
}
