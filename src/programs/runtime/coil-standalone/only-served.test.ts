import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { markServed } from "#base/served-sockets";
import { CniCode, CniError } from "#wire/cni";
import { type CniRpcCall, EMPTY_CNI_ARGS } from "#wire/cnirpc";
import { onlyServed } from "./only-served.ts";

test("onlyServed: a configuration names the usual socket or one that the node's daemon serves; another is code 7, and its DEL goes to the daemon", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-only-served-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const asked: string[] = [];
  const call = async (socket: string): Promise<undefined> => {
    asked.push(socket);
  };
  const request = (method: CniRpcCall["method"]): CniRpcCall =>
    method === "GC" ? { method, args: { network: "n", attachments: [] } } : { method, args: EMPTY_CNI_ARGS };
  const kind = "coild";
  const guarded = onlyServed(call, { kind, usual: "/run/coild.sock", folder });
  const [own, stranger] = [join(folder, "own.sock"), "/var/lib/kubelet/pods/x/volumes/y/coild.sock"];
  const refused = (socket: string, method: CniRpcCall["method"]): Promise<void> =>
    assert.rejects(guarded(socket, request(method)), (error) => {
      assert.ok(error instanceof CniError && error.cniCode === CniCode.invalidConfig);
      assert.match(
        error.message,
        /^network configuration: socket: "\/.+" is of no coild of this node: leave the key out, or/,
      );
      return true;
    });
  for (const usual of ["/run/coild.sock", "/var/run/coild.sock", "/run/./coild.sock"])
    await guarded(usual, request("Add"));
  for (const method of ["Add", "Check", "Status", "GC"] as const) {
    await refused(stranger, method);
    await refused(own, method);
  }
  assert.equal(asked.length, 3);
  await guarded(stranger, request("Del"));
  assert.equal(asked.at(-1), "/run/coild.sock");
  markServed(own, { kind, folder });
  markServed(stranger.replace("/var/lib", folder), { kind: "nic-agent", folder });
  await guarded(own, request("Add"));
  await refused(stranger, "Add");
  await guarded(stranger, request("Del"));
  assert.deepEqual(asked.slice(-2), [own, own]);
});
