import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { type KubeApi, KubeError } from "#kube/client";
import { hostListener, settingsOf } from "../testing/proxy-fixtures.ts";
import { cdiPatch, importProxy, isCurrent, POD_PROXY_URL, runCdiSync, syncCdi, withCredentials } from "./index.ts";

const WANTED = importProxy(POD_PROXY_URL);

/** An API server with one CDI object and one ConfigMap, which can be told to fail. */
class Api implements Pick<KubeApi, "get" | "patch"> {
  cdi: unknown = { metadata: { name: "cdi" }, spec: { workload: {} } };
  ca: string | undefined;
  failRead = false;
  failWrite = false;
  readonly writes: string[] = [];

  get: KubeApi["get"] = async (type) => {
    if (this.failRead) throw new KubeError("unreachable", "Cannot get: no route");
    if (type.kind === "CDI") return this.cdi as never;
    if (this.ca === undefined) throw new KubeError("not-found", "Cannot get: not found");
    return { data: { "ca.pem": this.ca } } as never;
  };

  patch: KubeApi["patch"] = async (type, ref, patch) => {
    if (this.failWrite) throw new KubeError("forbidden", "Cannot patch: forbidden");
    assert.ok(patch.type === "merge" || patch.type === "apply");
    this.writes.push(`${patch.type} ${type.plural} ${ref.name} ${JSON.stringify(patch.body)}`);
    if (type.kind === "CDI") this.cdi = { spec: { workload: {}, ...(patch.body as { spec: object }).spec } };
    else this.ca = (patch.body as { data: Record<string, string> }).data["ca.pem"];
    return this.cdi as never;
  };
}

function logger() {
  const lines: string[] = [];
  const take = (message: string, fields: object = {}): void => {
    lines.push(`${message} ${JSON.stringify(fields)}`);
  };
  return { lines, log: { info: take, warn: take } as unknown as Logger };
}

test("cdiPatch: the exact JSON that existing users compare with", () => {
  assert.equal(
    JSON.stringify(cdiPatch(WANTED)),
    '{"spec":{"config":{"importProxy":{"HTTPSProxy":"http://169.254.100.1:5443","noProxy":"10.42.0.0/16,10.43.0.0/16,127.0.0.0/8,localhost,.svc,.cluster.local,169.254.0.0/16"}}}}',
  );
  const odd = importProxy('http://x/"\\\n', { podCIDRs: [Cidr.parse("10.1.0.0/16")], serviceCIDRs: [] });
  assert.deepEqual(JSON.parse(JSON.stringify(cdiPatch(odd))), cdiPatch(odd));
  assert.match(odd.noProxy, /^10\.1\.0\.0\/16,127\.0\.0\.0\/8,/);
});

test("withCredentials: the token is the password, whatever is in it", () => {
  assert.equal(withCredentials(POD_PROXY_URL, "ab01"), "http://cdi:ab01@169.254.100.1:5443");
  assert.equal(withCredentials("https://[fd00::1]:443", "ab01"), "https://cdi:ab01@[fd00::1]:443");
  assert.equal(new URL(withCredentials(POD_PROXY_URL, "a/b@c:d")).password, "a%2Fb%40c%3Ad");
});

test("isCurrent: only our keys count", () => {
  const spec = { config: { importProxy: { ...WANTED, HTTPProxy: "http://other" }, featureGates: [] } };
  assert.equal(isCurrent({ spec }, WANTED), true);
  assert.equal(isCurrent({ spec }, { ...WANTED, trustedCAProxy: "ca" }), false);
  for (const odd of [{}, { spec: null }, { spec: { config: [] } }, { spec: { config: { importProxy: "x" } } }]) {
    assert.equal(isCurrent(odd, WANTED), false);
  }
});

test("syncCdi: writes on a difference, then never again", async () => {
  const api = new Api();
  const { log, lines } = logger();
  assert.equal(await syncCdi(api, { proxy: WANTED }, { log }), 1);
  assert.equal(await syncCdi(api, { proxy: WANTED }, { log }), 0);
  assert.deepEqual(api.writes, [`merge cdis cdi ${JSON.stringify(cdiPatch(WANTED))}`]);
  assert.equal(lines.length, 1);
});

test("syncCdi: writes anyway where it cannot read", async () => {
  const api = new Api();
  api.failRead = true;
  assert.equal(await syncCdi(api, { proxy: WANTED }, { log: logger().log }), 1);
});

test("syncCdi: the certificate is published before the URL that needs it, and the token is in no log line", async () => {
  const api = new Api();
  const { log, lines } = logger();
  const proxy = importProxy(withCredentials(POD_PROXY_URL, "5ec2e7"), { trustedCAProxy: "mgmtproxy-ca" });
  assert.equal(await syncCdi(api, { proxy, caPem: "PEM" }, { log }), 2);
  assert.deepEqual(
    api.writes.map((line) => line.split(" ").slice(0, 3).join(" ")),
    ["apply configmaps mgmtproxy-ca", "merge cdis cdi"],
  );
  assert.equal(await syncCdi(api, { proxy, caPem: "PEM" }, { log }), 0);
  assert.doesNotMatch(lines.join("\n"), /5ec2e7/);
});

test("runCdiSync: a failure is one warning and is tried again each tick", async () => {
  const api = new Api();
  api.failWrite = true;
  const { log, lines } = logger();
  const clock = new FakeClock();
  const stop = new AbortController();
  const settings = settingsOf({ listeners: [hostListener(5443, { role: "pod" })] });
  const published: boolean[] = [];
  const access = { tokens: undefined, certificate: undefined, published: (has: boolean) => published.push(has) };
  const done = runCdiSync({ api, log, clock, settings: () => settings, access }, { signal: stop.signal });
  await clock.advance(31_000);
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? "", /cannot set CDI importProxy.*forbidden/);
  assert.deepEqual(published, []);
  api.failWrite = false;
  await clock.advance(15_000);
  assert.equal(api.writes.length, 1);
  assert.deepEqual(published, [false]);
  await clock.advance(60_000);
  assert.equal(api.writes.length, 1);
  stop.abort();
  await clock.advance(0);
  await done;
});
