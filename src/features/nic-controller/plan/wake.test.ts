import assert from "node:assert/strict";
import { test } from "node:test";
import type { NamedNic, NicStatus } from "#kube/nic";
import { type ClaimRecord, nicsOf, recordOf } from "./record.ts";
import { wakesBy } from "./wake.ts";

const at = (second: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();

function recordWith(
  uid: string,
  status: Partial<NicStatus>,
  wish: Partial<NamedNic> = {},
  vpc = "v",
  namespace = "a",
): ClaimRecord {
  const nics = [{ name: "eth0", ...wish }];
  return recordOf(
    {
      metadata: { name: uid, namespace, uid, resourceVersion: "1" },
      spec: { podName: "p", podUID: uid, vpc, provider: "n", nics },
      status: { phase: "Failed", nics: [{ name: "eth0", state: "Failed", nextRetryAt: at(0), ...status }] },
    },
    namespace,
    true,
  );
}

/** The uids of claims whose NIC is tried again once a claim has given back its NIC. */
function woken(freed: ClaimRecord, others: readonly ClaimRecord[]): readonly string[] {
  const isWoken = wakesBy(freed, nicsOf(freed), others);
  return others.filter((record) => nicsOf(record).some((nic) => isWoken(nic, record))).map(({ uid }) => uid);
}

const FREED = recordWith("freed", { portID: "p0", mac: "m0", ips: [{ ip: "10.0.0.5", prefixLength: 24 }] });

test("wakesBy: of claims that wait for any port those of the project, or the namespace, that have waited longest, sixteen at most", () => {
  const waiting = Array.from({ length: 20 }, (_, one) =>
    recordWith(`w${one}`, { reason: "SubnetFull", nextRetryAt: at(20 - one) }),
  );
  assert.deepEqual(
    woken(FREED, waiting),
    waiting.slice(4).map(({ uid }) => uid),
  );
  const others = [
    recordWith("quota", { reason: "QuotaExceeded" }, {}, "w", "b"),
    recordWith("namespace", { reason: "ProviderQuota" }, {}, "w", "a"),
    recordWith("stranger", { reason: "ProviderQuota" }, {}, "w", "b"),
    recordWith("other fault", { reason: "BadRequest" }),
  ];
  assert.deepEqual(woken(FREED, others), ["quota", "namespace"]);
});

test("wakesBy: of claims that wait for one address, MAC or port those that want what was given back", () => {
  const others = [
    recordWith("ip", { reason: "IpInUse" }, { ip: "10.0.0.5" }, "w", "b"),
    recordWith("another ip", { reason: "IpInUse" }, { ip: "10.0.0.6" }),
    recordWith("mac", { reason: "MacInUse" }, { mac: "m0" }),
    recordWith("port", { reason: "PortInUse" }, { portID: "p0" }),
    recordWith("no such reason", { reason: "PortMismatch" }, { ip: "10.0.0.5" }),
  ];
  assert.deepEqual(woken(FREED, others), ["ip", "mac", "port"]);
  const releasing = others.map((record) => ({ ...record, status: { ...record.status, phase: "Releasing" as const } }));
  assert.deepEqual(woken(FREED, releasing), []);
});
