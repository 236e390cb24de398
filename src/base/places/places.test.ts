import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { Places } from "./index.ts";

const socketOf = (remoteAddress: string): Socket => ({ remoteAddress }) as Socket;

test("Places: at the limit the address with the most loses one of its own: first the one without a request for longest, then its oldest", () => {
  const places = new Places(4);
  const good = socketOf("192.0.2.1");
  const [first, second, third] = [socketOf("192.0.2.9"), socketOf("192.0.2.9"), socketOf("192.0.2.9")];
  for (const one of [good, first, second, third]) assert.equal(places.take(one), undefined);
  places.begin(first);
  places.end(first);
  assert.equal(places.take(socketOf("192.0.2.9")), second, "the first has been idle for a shorter time");
  places.begin(first);
  for (const one of places) if (one !== good && one !== first) places.begin(one);
  assert.equal(places.take(socketOf("198.51.100.1")), first, "all of its connections have a request");
  assert.equal([...places].includes(good), true);
  assert.equal(places.size, 4);
});

test("Places: a connection with two requests has one until both are answered; one that has gone has no place", () => {
  const places = new Places(2);
  const [one, two] = [socketOf("192.0.2.1"), socketOf("192.0.2.1")];
  places.take(one);
  places.take(two);
  for (const socket of [one, one, two]) places.begin(socket);
  places.end(one);
  places.end(two);
  assert.equal(places.take(socketOf("192.0.2.1")), two);
  places.leave(one);
  places.leave(one);
  places.begin(one);
  assert.equal(places.size, 1);
  assert.equal(places.take(socketOf("192.0.2.1")), undefined);
});
