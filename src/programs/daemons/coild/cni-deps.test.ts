import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { CniFailure } from "#features/cni";
import { IpamError, NodeIpam } from "#features/ipam";
import { type KubeApi, KubeConfigError, KubeError } from "#kube/client";
import { egressLabels, egressPoolName } from "#kube/coil";
import { egressPoolOf, findPod, statusOf } from "./cni-deps.ts";

const WELL = { lost: [], nodeGone: false };
const LOST = [{ containerId: "c", ifname: "eth0", block: "default-0", addresses: [] }];
const READY = { isReady: true, setUpFault: undefined };

for (const { name, ipam, parts, code, text } of [
  { name: "all is well", ipam: {}, parts: {}, code: undefined, text: undefined },
  { name: "attachments are cut off", ipam: { lost: LOST }, parts: {}, code: 51, text: /1 attachments are cut off/ },
  { name: "this Node was deleted", ipam: { nodeGone: true }, parts: {}, code: 51, text: /Node was deleted/ },
  { name: "blocks are not known yet", ipam: {}, parts: { isReady: false }, code: 50, text: /has just started/ },
  { name: "links cannot be made", ipam: {}, parts: { setUpFault: "no sysctl" }, code: 50, text: /^no sysctl$/ },
  {
    name: "attachments are cut off while coild starts",
    ipam: { lost: LOST },
    parts: { isReady: false },
    code: 51,
    text: /cut off/,
  },
]) {
  test(`STATUS: ${name}`, () => {
    const failure = statusOf({ ...WELL, ...ipam }, { ...READY, ...parts });
    assert.equal(failure?.detail.code, code);
    if (text !== undefined) assert.match(failure?.message ?? "", text);
  });
}

test("STATUS: a full pool, of which the ADD and the pod's event tell, is none of its failures", async () => {
  const full = new IpamError("exhausted", "pool default does not have free blocks");
  const source: ConstructorParameters<typeof NodeIpam>[0]["source"] = {
    list: async () => ({ blocks: [], unreadable: new Set() }),
    request: () => Promise.reject(full),
    settle: async () => undefined,
    removeAnswered: async () => 0,
    release: async () => undefined,
  };
  const ipam = new NodeIpam(
    { source, log: nullLogger, clock: systemClock, onBlocksChanged: () => undefined },
    { collectIntervalMs: 60_000, releaseDelayMs: 0, freedSoonMs: 0 },
  );
  const attachment = { containerId: "c", ifname: "eth0" };
  await assert.rejects(ipam.allocate("default", attachment, {}), { code: "exhausted" });
  assert.equal(statusOf(ipam, READY), undefined);
});

test("findPod: an ADD for which there are no credentials now is to be tried again, as one without an answer", async () => {
  for (const error of [new KubeError("unreachable", "away"), new KubeConfigError("exec-failed", "no network")]) {
    const api = { get: () => Promise.reject(error) } as unknown as KubeApi;
    await assert.rejects(findPod(api, "default", "p", {}), (failure) => {
      assert.ok(failure instanceof CniFailure);
      assert.equal(failure.detail.code, 11);
      return true;
    });
  }
});

test("egressPoolOf: a router of an Egress with addresses has its pool; other pods cost no request", async () => {
  const asked: string[] = [];
  const api = (answer: object | KubeError): Pick<KubeApi, "get"> => ({
    get: async (_type, { namespace, name }) => {
      asked.push(`${namespace}/${name}`);
      if (answer instanceof KubeError) throw answer;
      return answer as never;
    },
  });
  const pod = (labels: Readonly<Record<string, string>> | undefined) => ({
    namespace: "internet",
    name: "p",
    uid: "u",
    labels,
  });
  const options = { signal: new AbortController().signal };
  const nat = egressLabels("nat");
  const egress = { metadata: {}, spec: { addresses: [{ ipv4: "203.0.113.8/32" }] } };
  for (const labels of [undefined, {}, { ...nat, "app.kubernetes.io/component": "x" }])
    assert.equal(await egressPoolOf(api(egress), pod(labels), options), undefined);
  assert.deepEqual(asked, []);
  assert.equal(
    await egressPoolOf(api(egress), pod(nat), options),
    egressPoolName({ namespace: "internet", name: "nat" }),
  );
  assert.equal(await egressPoolOf(api({ metadata: {}, spec: {} }), pod(nat), options), undefined);
  assert.equal(await egressPoolOf(api(new KubeError("not-found", "gone")), pod(nat), options), undefined);
  assert.deepEqual(
    asked,
    Array.from({ length: 3 }, () => "internet/nat"),
  );
  await assert.rejects(egressPoolOf(api(new KubeError("forbidden", "no")), pod(nat), options), CniFailure);
});
