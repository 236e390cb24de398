import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { claimSocketPath, listenOnPath } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-socket-"));
after(() => rmSync(folder, { recursive: true }));

test("claimSocketPath: a file that is no socket stays, and is named in the error", async () => {
  const file = join(folder, "precious");
  writeFileSync(file, "hi");
  const other = join(folder, "folder");
  mkdirSync(other);
  for (const path of [file, other]) {
    await assert.rejects(claimSocketPath(path, { deleteExisting: true }), {
      code: "not-a-socket",
      message: new RegExp(path),
    });
  }
  assert.equal(readFileSync(file, "utf8"), "hi");
});

test("claimSocketPath: a served socket is refused; one left behind is removed on request", async () => {
  const path = join(folder, "served");
  const server = createServer();
  await claimSocketPath(path, { deleteExisting: true });
  await listenOnPath(server, path, { umask: 0o007 });
  assert.equal(statSync(path).mode & 0o777, 0o770);
  await assert.rejects(claimSocketPath(path, { deleteExisting: true }), { code: "in-use" });
  // A socket file without a listener, as a killed process leaves it.
  const left = join(folder, "left");
  const dead = createServer();
  await listenOnPath(dead, left, { umask: 0o177 });
  execFileSync("cp", ["-a", left, `${left}-behind`]);
  await new Promise((resolve) => dead.close(resolve));
  await assert.rejects(claimSocketPath(`${left}-behind`, { deleteExisting: false }), { code: "exists" });
  await claimSocketPath(`${left}-behind`, { deleteExisting: true });
  assert.equal(existsSync(`${left}-behind`), false);
  await new Promise((resolve) => server.close(resolve));
});

test("claimSocketPath: a socket of which is not known whether a process listens there stays", async () => {
  const path = join(folder, "unknown");
  const server = createServer();
  await listenOnPath(server, path, { umask: 0o177 });
  after(() => server.close());
  const program = join(import.meta.dirname, "testing/short-claim.ts");
  const command = ["-c", 'ulimit -n 64 && exec "$0" "$1" "$2"', process.execPath, program, path];
  assert.equal(execFileSync("sh", command, { encoding: "utf8" }), "cannot-listen");
  assert.ok(existsSync(path));
});

test("listenOnPath: a path that cannot be had is named", async () => {
  const path = join(folder, "no", "such", "folder");
  await assert.rejects(listenOnPath(createServer(), path, { umask: 0o177 }), {
    code: "cannot-listen",
    message: new RegExp(path),
  });
});

test("listenOnPath: a client that cannot be accepted later ends no program", async () => {
  const server = createServer();
  await listenOnPath(server, join(folder, "short"), { umask: 0o177 });
  after(() => server.close());
  // As Node.js does where accept(2) fails with ENFILE, ENOMEM or ENOBUFS.
  server.emit("error", Object.assign(new Error("accept ENFILE"), { code: "ENFILE" }));
  assert.ok(server.listening);
});
