import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, constants } from "node:http2";
import { test } from "node:test";
import { TUNNEL_METHODS } from "#wire/konnectivity";
import { Bed } from "../testing/bed.ts";

test("serveAgentStream: hundreds of streams that are reset at once do not delay an agent", async () => {
  await using bed = await Bed.open({ agentAcceptRate: 20 });
  const session = connect(`http://127.0.0.1:${bed.agentPort}`);
  session.on("error", () => undefined);
  await once(session, "remoteSettings");
  const streams = Array.from({ length: 400 }, (_, at) => {
    const stream = session.request(
      {
        ":method": "POST",
        ":path": TUNNEL_METHODS.connect,
        "content-type": "application/grpc",
        agentid: `flood-${at}`,
      },
      { endStream: false },
    );
    stream.on("error", () => undefined);
    const closed = new Promise((resolve) => stream.once("close", resolve));
    setImmediate(() => stream.close(constants.NGHTTP2_CANCEL));
    return closed;
  });
  await Promise.all(streams);
  const started = performance.now();
  // Behind all of them it would wait for 18 s. An answer after more than 5 s is an error.
  await bed.agent("good");
  assert.ok(performance.now() - started < 2000);
  session.destroy();
  assert.deepEqual(bed.bugs, []);
});
