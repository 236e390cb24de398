import assert from "node:assert/strict";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { SocketEnd } from "./socket-end.ts";

test("SocketEnd: a reset of a UNIX socket, which knows none, closes it", async (t) => {
  const path = join(tmpdir(), `isthmus-socket-end-${process.pid}.sock`);
  const server = createServer({ allowHalfOpen: true });
  await once(server.listen(path), "listening");
  t.after(() => {
    server.close();
    rmSync(path, { force: true });
  });
  const client = connect(path);
  const [accepted] = (await once(server, "connection")) as [Socket];
  const end = new SocketEnd(accepted);
  end.watch({ onEof: () => undefined, onGone: () => undefined });
  end.destroy("reset");
  client.resume();
  await once(client, "close");
  assert.equal(accepted.destroyed, true);
});
