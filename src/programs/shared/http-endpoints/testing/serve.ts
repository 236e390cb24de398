import assert from "node:assert/strict";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import type { TestContext } from "node:test";
import { nullLogger } from "#base/log";
import type { HttpRoutes } from "#wire/http-endpoint";
import { serveRoutes } from "../http.ts";

/** Serves routes on loopback until the test ends. */
export async function serve(t: TestContext, routes: HttpRoutes) {
  const bugs: unknown[] = [];
  const endpoint = await serveRoutes(
    { routes, log: nullLogger, onBug: (error) => bugs.push(error) },
    { address: { host: "127.0.0.1", port: 0 } },
  );
  t.after(() => endpoint[Symbol.asyncDispose]());
  const get = async (path: string): Promise<string> => {
    const answer = await fetch(`http://127.0.0.1:${endpoint.port}${path}`, { redirect: "manual" });
    assert.equal(answer.headers.get("cache-control"), "no-store", path);
    return `${answer.status} ${await answer.text()}`;
  };
  /** Sends the bytes unchanged, and reads until the end. */
  const raw = (request: string): Promise<string> => {
    const socket = connect(endpoint.port, "127.0.0.1");
    socket.end(request);
    return text(socket);
  };
  return { endpoint, bugs, get, raw };
}
