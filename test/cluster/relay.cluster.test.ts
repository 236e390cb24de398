import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import type { ApiServerOptions } from "#lab/api-server";
import { labPaths } from "#lab/host";
import type { LabReport } from "#lab/scenario";
import { embeddedCluster } from "#test/foreign-cluster";
import { isthmus, leftOf, type Outcome, removeLab, stateOf } from "#test/lab";

const TIMEOUT = { timeout: 180_000 };
const TOKENS = { "relay-token": { name: "relay", groups: ["system:masters"] } };

/** See `embeddedCluster`; gone when the test ends, after the lab that is its guest. */
async function foreignCluster(
  t: TestContext,
  lab: string,
  options: Pick<ApiServerOptions, "listen" | "tls" | "tokens">,
) {
  const cluster = await embeddedCluster(options);
  t.after(async () => {
    try {
      await removeLab(lab);
    } finally {
      await cluster[Symbol.asyncDispose]();
    }
  });
  return cluster;
}

const KINDS = [
  { says: "http, IPv4", options: { listen: { host: "127.0.0.1", port: 0 } }, families: "dual" },
  {
    says: "https with a token, IPv6, nodes of IPv6",
    options: { listen: { host: "::1", port: 0 }, tls: "self-signed", tokens: TOKENS },
    families: "ipv6",
  },
] as const;

/** All is well in a lab with one node, which was on that server. */
function assertWorks(
  { code, stdout, stderr }: Outcome,
  at: { readonly lab: string; readonly url: string | undefined },
): void {
  assert.equal(code, 0, stderr);
  const report = JSON.parse(stdout) as LabReport;
  assert.deepEqual([report.ok, report.nodes, report.pods, report.audit.findings], [true, 1, 2, []]);
  assert.ok(report.pings.sent > 0 && report.pings.answered === report.pings.sent);
  assert.ok(stderr.includes(`using the API server ${at.url}`), stderr);
  assert.match(report.cluster.pods[0]?.name ?? "", new RegExp(`^isthmus-${at.lab}-\\w+-d`));
}

for (const [at, { says, options, families }] of KINDS.entries()) {
  test(`lab: on another API server, ${says}, all is well, and the machine is left clean`, TIMEOUT, async (t) => {
    const lab = `ct-relay-${at}`;
    const { client, kubeconfig, server } = await foreignCluster(t, lab, options);
    const args = ["lab", "--json", `--name=${lab}`, "--nodes=1", "--pods=2", `--families=${families}`];
    assertWorks(await isthmus([...args, `--kubeconfig=${kubeconfig}`]), { lab, url: server.urls[0] });
    assert.equal((await client.listAll(resources.pods)).items.length, 0);
    assert.deepEqual(leftOf(lab), []);
  });
}

test(
  "lab: on another API server, https with a token, IPv4, all is well; one that is kept writes a kubeconfig that works from anywhere, and down leaves the machine clean",
  TIMEOUT,
  async (t) => {
    const lab = "ct-relay-kept";
    const {
      client: own,
      kubeconfig,
      server,
      folder,
    } = await foreignCluster(t, lab, {
      listen: { host: "127.0.0.1", port: 0 },
      tls: "self-signed",
      tokens: TOKENS,
    });
    // The authority's certificate in a file of its own, named relative to the kubeconfig.
    const [, data = ""] = /certificate-authority-data: (\S+)/.exec(server.kubeconfig()) ?? [];
    assert.match(Buffer.from(data, "base64").toString(), /BEGIN CERTIFICATE/);
    writeFileSync(join(folder, "ca.crt"), Buffer.from(data, "base64"));
    writeFileSync(
      kubeconfig,
      server.kubeconfig().replace(/certificate-authority-data: \S+/, "certificate-authority: ca.crt"),
    );
    const args = ["lab", "--json", "--keep", `--name=${lab}`, "--nodes=1", "--pods=2", `--kubeconfig=${kubeconfig}`];
    assertWorks(await isthmus(args), { lab, url: server.urls[0] });
    assert.equal(stateOf(lab).identity.isGuest, true);
    const { logs } = labPaths(lab);
    const warnings = readdirSync(logs).flatMap((name) =>
      readFileSync(join(logs, name), "utf8")
        .split("\n")
        .filter((line) => line.includes("Warning")),
    );
    assert.deepEqual(warnings, []);
    const client = new KubeClient(await loadKubeConfig({ path: labPaths(lab).kubeconfig, clock: systemClock }), {
      clock: systemClock,
    });
    t.after(() => client.close());
    assert.deepEqual(
      (await client.listAll(resources.nodes)).items.map(({ metadata }) => metadata.name),
      [`${stateOf(lab).identity.prefix}node1`],
    );
    assert.equal((await isthmus(["lab", "down", `--name=${lab}`])).code, 0);
    assert.equal((await own.listAll(resources.pods)).items.length, 0);
    assert.deepEqual(leftOf(lab), []);
  },
);

test("lab: another API server that does not answer is named", TIMEOUT, async (t) => {
  const lab = "ct-relay-away";
  const { kubeconfig, server } = await foreignCluster(t, lab, { listen: { host: "127.0.0.1", port: 0 } });
  writeFileSync(kubeconfig, server.kubeconfig({ server: "http://127.0.0.1:1" }));
  const { code, stdout, stderr } = await isthmus(["lab", `--name=${lab}`, "--nodes=1", `--kubeconfig=${kubeconfig}`]);
  assert.deepEqual([code, stdout], [1, ""], stderr);
  const said = stderr.split("\n").filter((line) => line.startsWith("isthmus lab: "));
  assert.equal(said.length, 1, stderr);
  assert.match(said[0] ?? "", /127\.0\.0\.1:1/);
  assert.doesNotMatch(stderr, /this is a bug/);
  assert.deepEqual(leftOf(lab), []);
});
