import assert from "node:assert/strict";
import { test } from "node:test";
import { endpoint, NODE, servicePort } from "../testing/fixture.ts";
import { type Endpoint, type ServicePort, selectEndpoints } from "./index.ts";

const inner = { nodePort: 0, loadBalancerIPs: [], externalIPs: [] };
const local = (changes: Partial<Endpoint> = {}): Endpoint => endpoint(4, "local", changes);
const remote = (changes: Partial<Endpoint> = {}): Endpoint => endpoint(4, "remote", changes);
const terminating = { ready: false, terminating: true };
const down = { ready: false, serving: false };
const zones = (...zoneHints: string[]) => ({ zoneHints });
const nodes = (...nodeHints: string[]) => ({ nodeHints });

/** `cluster | local | has`: `l` and `r` for the local and remote endpoint. */
function inShort(changes: Partial<ServicePort>, endpoints: readonly Endpoint[], zone?: string): string {
  const { cluster, local: here, hasEndpoints } = selectEndpoints(servicePort(4, changes), endpoints, { ...NODE, zone });
  const text = (list: readonly Endpoint[]): string => list.map(({ isLocal }) => (isLocal ? "l" : "r")).join("") || "-";
  return `${text(cluster)} ${text(here)} ${hasEndpoints}`;
}

const Local = { externalTrafficPolicy: "Local" } as const;
const internalLocal = { internalTrafficPolicy: "Local" } as const;

test("selectEndpoints: policies, readiness and terminating endpoints, as in upstream's table", () => {
  const rows: readonly (readonly [string, Partial<ServicePort>, readonly Endpoint[], string])[] = [
    ["cluster policies", {}, [local(), remote()], "lr - true"],
    ["no endpoints", {}, [], "- - false"],
    ["unready is never used", {}, [local(down), remote()], "r - true"],
    ["none ready, none serving", {}, [local(down), remote(down)], "- - false"],
    ["all terminating", {}, [local(terminating), remote(terminating)], "lr - true"],
    ["one ready, one terminating", {}, [local(terminating), remote()], "r - true"],
    ["terminating that does not serve", {}, [remote({ ...terminating, serving: false })], "- - false"],
    ["external Local", Local, [local(), remote()], "lr l true"],
    ["external Local, none here", Local, [remote()], "r - true"],
    ["external Local, terminating here", Local, [local(terminating), remote()], "r l true"],
    ["external Local, terminating here, down elsewhere", Local, [local(terminating), remote(down)], "l l true"],
    ["external Local, not accessible from outside", { ...inner, ...Local }, [local(), remote()], "lr - true"],
    ["internal Local alone", { ...inner, ...internalLocal }, [local(), remote()], "- l true"],
    ["internal Local alone, none here", { ...inner, ...internalLocal }, [remote()], "- - true"],
    ["internal Local alone, terminating elsewhere", { ...inner, ...internalLocal }, [remote(terminating)], "- - true"],
    ["internal Local alone, no endpoint", { ...inner, ...internalLocal }, [remote(down)], "- - false"],
    ["internal Local, accessible from outside", internalLocal, [local(), remote()], "lr l true"],
    ["both Local", { ...Local, ...internalLocal }, [local(), remote()], "lr l true"],
  ];
  for (const [name, changes, endpoints, expected] of rows) assert.equal(inShort(changes, endpoints), expected, name);
});

test("selectEndpoints: topology hints count if all ready endpoints have them and one names this node or zone", () => {
  const rows: readonly (readonly [string, readonly Endpoint[], string | undefined, string])[] = [
    ["same zone", [local(zones("a")), remote(zones("b"))], "a", "l - true"],
    ["other zone", [local(zones("a")), remote(zones("b"))], "b", "r - true"],
    ["an unknown zone", [local(zones("a")), remote(zones("b"))], "c", "lr - true"],
    ["no zone here", [local(zones("a")), remote(zones("b"))], undefined, "lr - true"],
    ["one without hints", [local(zones("a")), remote()], "a", "lr - true"],
    ["several hints", [local(zones("b")), remote(zones("a", "b"))], "a", "r - true"],
    ["unready ones' missing hints do not count", [local(zones("a")), remote(down)], "a", "l - true"],
    ["only unready in our zone", [local({ ...zones("a"), ...down }), remote(zones("b"))], "a", "r - true"],
    ["same node", [local(nodes(NODE.name)), remote(nodes("node-b"))], undefined, "l - true"],
    [
      "node before zone",
      [local({ ...nodes(NODE.name), ...zones("a") }), remote({ ...nodes("node-b"), ...zones("a") })],
      "a",
      "l - true",
    ],
    [
      "hints for other nodes fall back to the zone",
      [local({ ...nodes("x"), ...zones("a") }), remote({ ...nodes("y"), ...zones("b") })],
      "b",
      "r - true",
    ],
    ["node hints missing on one", [local(nodes(NODE.name)), remote()], undefined, "lr - true"],
  ];
  for (const [name, endpoints, zone, expected] of rows) assert.equal(inShort(inner, endpoints, zone), expected, name);
  assert.equal(
    inShort(Local, [local(zones("b")), remote(zones("a"))], "a"),
    "r l true",
    "Local policies heed no hints",
  );
});
