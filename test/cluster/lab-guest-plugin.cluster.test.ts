import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse, stringify } from "yaml";
import type { LabReport } from "#lab/scenario";
import { embeddedCluster } from "#test/foreign-cluster";
import { isthmus, leftOf, nameOfGuest, removeLab } from "#test/lab";

const LAB = nameOfGuest("ct-plugin");
const TOKEN = "admin";
/** A plugin as those of clouds: it needs the session of the user who starts the lab, and its token is short-lived. */
const PLUGIN = `#!/bin/sh
[ "$CLOUD_SESSION" = open ] || { echo "no session: log in" >&2; exit 1; }
expires=$(date -u -d '+15 seconds' +%Y-%m-%dT%H:%M:%SZ)
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"${TOKEN}","expirationTimestamp":"'$expires'"}}'
echo run >>"$0.runs"
`;

test("lab: on a cluster with an exec plugin its programs have the plugin's token", { timeout: 180_000 }, async (t) => {
  const cluster = await embeddedCluster();
  t.after(async () => {
    try {
      await removeLab(LAB);
    } finally {
      await cluster[Symbol.asyncDispose]();
    }
  });
  const plugin = join(cluster.folder, "plugin");
  writeFileSync(plugin, PLUGIN, { mode: 0o755 });
  const config = parse(readFileSync(cluster.kubeconfig, "utf8"));
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "./plugin", interactiveMode: "Never" };
  for (const entry of config.users) entry.user = { exec };
  const kubeconfig = join(cluster.folder, "by-plugin");
  writeFileSync(kubeconfig, stringify(config));
  const run = (session: string) =>
    isthmus(["lab", "--json", `--name=${LAB}`, "--nodes=1", "--pods=2", `--kubeconfig=${kubeconfig}`], {
      env: { CLOUD_SESSION: session },
      timeoutMs: 150_000,
    });
  const { code, stdout, stderr } = await run("open");
  assert.equal(code, 0, stderr + stdout);
  const report = JSON.parse(stdout) as LabReport;
  assert.deepEqual([report.ok, report.pods, report.audit.findings], [true, 2, []]);
  assert.deepEqual(leftOf(LAB), []);
  const refused = await run("closed");
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /\/plugin failed: .*no session: log in/);
  assert.deepEqual(leftOf(LAB), []);
});
