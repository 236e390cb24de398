import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FROM_SOURCE } from "#test/from-source";

test("doctor --cluster: one that may read nothing fails, and names what it did not see", async (t) => {
  const server = createServer((request, response) => {
    const isVersion = request.url === "/version";
    const refusal = {
      kind: "Status",
      apiVersion: "v1",
      status: "Failure",
      reason: "Forbidden",
      code: 403,
      message: "no",
    };
    response.writeHead(isVersion ? 200 : 403, { "content-type": "application/json" });
    response.end(JSON.stringify(isVersion ? { gitVersion: "v1.33.0" } : refusal));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const folder = mkdtempSync(join(tmpdir(), "doctor-"));
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(folder, { recursive: true });
  });
  const kubeconfig = join(folder, "kubeconfig");
  const { port } = server.address() as AddressInfo;
  const clusters = [{ name: "c", cluster: { server: `http://127.0.0.1:${port}` } }];
  const contexts = [{ name: "c", context: { cluster: "c", user: "u" } }];
  const users = [{ name: "u", user: {} }];
  const content = { apiVersion: "v1", kind: "Config", "current-context": "c", clusters, contexts, users };
  writeFileSync(kubeconfig, JSON.stringify(content));
  const words = [...FROM_SOURCE, "doctor", "--cluster", `--kubeconfig=${kubeconfig}`];
  const { promise, resolve } = Promise.withResolvers<{ readonly code: unknown; readonly stdout: string }>();
  execFile(process.execPath, words, (error, stdout) => resolve({ code: error?.code ?? 0, stdout }));
  const { code, stdout } = await promise;
  assert.equal(code, 1, stdout);
  assert.match(stdout, /^unknown +crd: CRDs +cannot be read: .*403/m);
  assert.match(stdout, / checks: 0 ok, 0 wrong, 0 warnings, \d+ unknown\n$/);
});
