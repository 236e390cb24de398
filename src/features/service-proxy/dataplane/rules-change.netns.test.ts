import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, servicePort } from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

/** More than the accesses to the kernel of one sync of a new table. */
const MAX_STEPS = 60;
const OTHER_PODS = { 4: Cidr.parse("10.77.0.0/16"), 6: Cidr.parse("fd77::/64") } as const;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-rules-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

/** Calls `hook` before each access to the kernel that changes or lists something. */
function hooked<T extends object>(target: T, hook: () => void): T {
  const steps: readonly PropertyKey[] = ["run", "commit", "listInSlices"];
  return new Proxy(target, {
    get: (of, key) => {
      const value: unknown = Reflect.get(of, key);
      if (typeof value !== "function") return value;
      return (...args: unknown[]): unknown => {
        if (steps.includes(key)) hook();
        return value.apply(of, args);
      };
    },
  });
}

function open(family: IpFamily, hook: () => void): DataPlane {
  const generations = new GenerationTracker(bed.elements);
  const [nft, elements] = [hooked(bed.nft, hook), hooked(bed.elements, hook)];
  return new DataPlane(
    { nft, elements, generations, clock: systemClock, log: nullLogger },
    { ...ruleOptions(family), tableName: "kube-proxy" },
  );
}

function wanted(family: IpFamily): WantedState {
  const { node } = addressesOf(family);
  const services = new WantedTable();
  const port = servicePort(family, { affinitySeconds: 7 });
  services.set("ns/web", planService([{ port, endpoints: [endpoint(family, "remote")] }], NODE, [node]));
  return { services, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [] };
}

const rulesOf = (family: IpFamily): string => {
  const text = bed.nft.print({ family: family === 4 ? "ip" : "ip6", name: "kube-proxy" }) ?? "";
  return /chain services \{[^}]*\}/.exec(text)?.[0] ?? "";
};

/** A sync of a plane with `before`, during whose step `at` the rules change; then a second sync. False if the first one has fewer steps. */
async function changeAt(family: IpFamily, at: number, start: "new" | "adopted"): Promise<boolean> {
  let step = 0;
  let isCounted = start === "new";
  const plane = open(family, () => {
    if (!isCounted) return;
    step += 1;
    if (step === at) plane.setRules(ruleOptions(family, { detector: { kind: "source", cidr: OTHER_PODS[family] } }));
  });
  if (start === "new") await plane.remove();
  step = 0;
  if (start === "adopted") {
    await plane.sync(wanted(family), { full: true });
    isCounted = true;
    plane.distrust();
  }
  await plane.sync(wanted(family), { full: true });
  if (step < at) return false;
  await plane.sync(wanted(family));
  assert.ok(rulesOf(family).includes(String(OTHER_PODS[family])), `${start}, step ${at}: ${rulesOf(family)}`);
  const restarted = open(family, () => undefined);
  restarted.setRules(ruleOptions(family, { detector: { kind: "source", cidr: OTHER_PODS[family] } }));
  assert.equal((await restarted.sync(wanted(family))).transactions, 0, `${start}, step ${at}`);
  return true;
}

for (const family of [4, 6] as const)
  for (const start of ["new", "adopted"] as const)
    test(`DataPlane: rules that change during a sync of ${start === "new" ? "a new" : "an adopted"} table are in the kernel after the next one, IPv${family}`, async () => {
      let steps = 0;
      while (steps < MAX_STEPS && (await changeAt(family, steps + 1, start))) steps += 1;
      assert.ok(steps > 0 && steps < MAX_STEPS, `${steps} steps`);
    });
