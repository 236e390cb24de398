import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { after, test } from "node:test";
import { labPaths } from "#lab/host";
import { isthmus, leftOf, removeLab } from "#test/lab";

const LAB = "ct-exec";

after(async () => removeLab(LAB));

test("lab: kubectl exec runs a command in a pod, straight to its node, with its input and exit code", {
  timeout: 120_000,
}, async () => {
  const up = await isthmus(["lab", "--keep", `--name=${LAB}`, "--nodes=1", "--pods=1", "--families=ipv4"]);
  assert.equal(up.code, 0, up.stderr + up.stdout);
  const kubeconfig = `--kubeconfig=${labPaths(LAB).kubeconfig}`;
  const names = "jsonpath={.items[0].metadata.namespace} {.items[0].metadata.name} {.items[0].status.podIP}";
  const found = execFileSync("kubectl", [kubeconfig, "get", "pods", "-A", "-o", names], { encoding: "utf8" });
  const [namespace = "", pod = "", address = ""] = found.split(" ");
  const command = ["sh", "-c", "ip -o address show eth0; cat; exit 7"];
  const { status, stdout, stderr } = spawnSync(
    "kubectl",
    [kubeconfig, "exec", "--stdin", "--namespace", namespace, pod, "--", ...command],
    { input: "and this", encoding: "utf8", timeout: 30_000 },
  );
  assert.equal(status, 7, stderr);
  assert.ok(stdout.includes(` ${address}/`) && stdout.endsWith("and this"), stdout);
  assert.equal((await isthmus(["lab", "down", `--name=${LAB}`])).code, 0);
  assert.deepEqual(leftOf(LAB), []);
});
