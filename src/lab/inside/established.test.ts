import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { establishedIn, parseTcpTable, socketsOf } from "./established.ts";

const ROWS = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 01FFFF0A:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 01FFFF0A:CB32 01FFFF0A:192B 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1
   2: 01FFFF0A:CB33 what else
   3: B80D0120000000000000000001000000:CB34 B80D0120000000000000000002000000:0050 01 00000000:00000000 02:0 00000000 0 0 4713
`;

test("parseTcpTable: the established rows of both families, without other rows", () => {
  const rows = parseTcpTable(ROWS).map(({ inode, remote, remotePort }) => `${inode} ${remote} ${remotePort}`);
  assert.deepEqual(rows, ["4712 10.255.255.1 6443", "4713 2001:db8::2 80"]);
});

test("parseTcpTable: throws for no text", () => {
  const field = fc.oneof(fc.stringMatching(/^[0-9A-F]{0,34}(:[0-9A-F]{0,5})?$/), fc.constant("01"), fc.string());
  const line = fc.array(field, { maxLength: 12 }).map((fields) => fields.join(" "));
  fc.assert(fc.property(fc.array(line), (lines) => Array.isArray(parseTcpTable(lines.join("\n")))));
});

for (const host of ["127.0.0.1", "::1"]) {
  test(`establishedIn, socketsOf: the own connection of this process to ${host} is found`, async (t) => {
    const server = createServer();
    t.after(() => server.close());
    await once(server.listen(0, host), "listening");
    const port = (server.address() as { readonly port: number }).port;
    const socket = connect(port, host);
    t.after(() => socket.destroy());
    const [[accepted]] = await Promise.all([once(server, "connection"), once(socket, "connect")]);
    t.after(() => accepted.destroy());
    const found = establishedIn(process.pid).filter(({ remotePort }) => remotePort === port);
    assert.deepEqual(
      found.map(({ remote }) => remote.toString()),
      [host],
    );
    assert.ok(socketsOf(process.pid).has(found[0]?.inode ?? ""));
  });
}

test("establishedIn, socketsOf: a process that has ended has none", () => {
  assert.deepEqual(establishedIn(2 ** 22 + 1), []);
  assert.equal(socketsOf(2 ** 22 + 1).size, 0);
});
