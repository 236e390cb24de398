import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { NeutronApi } from "./api.ts";

test("NeutronApi: the error of a failed server has the end of its log, and that of a refusal only the answer", async (t) => {
  const server = createServer((request, response) => {
    response.statusCode = request.url === "/v2.0/ports" ? 500 : 409;
    response.end("no");
  });
  server.listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const api = new NeutronApi(url, { lastWords: () => "Traceback: no connection" });
  const failed = /^POST ports: HTTP 500: no; its log ends:\nTraceback: no connection$/;
  await assert.rejects(api.make("port", {}), { code: "refused", message: failed });
  await assert.rejects(api.make("network", {}), { code: "refused", message: "POST networks: HTTP 409: no" });
});
