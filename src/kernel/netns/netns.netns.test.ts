import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readlinkSync, statSync } from "node:fs";
import { test } from "node:test";
import { isKernelError } from "#kernel/errors";
import { createAnonymousNetNs, createNetNs, deleteNetNs, inNetNs, listNetNs, openNetNs } from "./index.ts";

const NAME = `isk-netns-${process.pid}`;
const own = (): string => readlinkSync("/proc/thread-self/ns/net");

function ip(...words: readonly string[]): string {
  return execFileSync("ip", words, { encoding: "utf8" });
}

test("createNetNs and `ip netns`: each lists and deletes namespaces of the other", () => {
  using made = createNetNs(NAME);
  assert.match(ip("netns", "list"), new RegExp(`^${NAME}\\b`, "m"));
  assert.equal(statSync(`/run/netns/${NAME}`, { bigint: true }).ino, made.inode);
  ip("netns", "delete", NAME);
  assert.ok(!listNetNs().includes(NAME));
  ip("netns", "add", NAME);
  using opened = openNetNs({ name: NAME });
  assert.notEqual(opened.inode, made.inode);
  deleteNetNs(NAME);
  assert.doesNotMatch(ip("netns", "list"), new RegExp(`^${NAME}\\b`, "m"));
});

test("inNetNs: what is open inside another namespace is judged there, and home stays home", () => {
  using other = createAnonymousNetNs();
  using home = openNetNs("own");
  const [inside, outside] = [`net:[${other.inode}]`, `net:[${home.inode}]`];
  assert.equal(inNetNs(home, own), outside);
  assert.deepEqual(
    inNetNs(other, () => [inNetNs(other, own), inNetNs(home, own), own()]),
    [inside, outside, inside],
  );
  assert.equal(inNetNs(home, own), outside);
});

test("inNetNs: is inside for the length of the function, and comes back also when it throws", () => {
  using ns = createAnonymousNetNs();
  const home = own();
  assert.equal(inNetNs(ns, own), `net:[${ns.inode}]`);
  assert.equal(own(), home);
  assert.throws(
    () =>
      inNetNs(ns, () => {
        throw new Error("inside");
      }),
    /inside/,
  );
  assert.equal(own(), home);
  using other = createAnonymousNetNs();
  assert.equal(
    inNetNs(ns, () => inNetNs(other, own)),
    `net:[${other.inode}]`,
    "nested",
  );
  assert.equal(own(), home);
});

test("inNetNs: asynchronous functions do not pass the type checker", () => {
  using ns = createAnonymousNetNs();
  // @ts-expect-error: after the first await it would run in the wrong namespace
  const result: unknown = inNetNs(ns, async () => 1);
  assert.ok(result instanceof Promise);
});

test("openNetNs: by process, own, and refusals with a reason", () => {
  using mine = openNetNs("own");
  using byPid = openNetNs({ pid: process.pid });
  assert.equal(mine.inode, byPid.inode);
  assert.throws(
    () => openNetNs({ pid: 0 }),
    (error) => isKernelError(error, "invalid"),
  );
  assert.throws(
    () => openNetNs({ name: "../etc" }),
    (error) => isKernelError(error, "invalid"),
  );
  assert.throws(
    () => openNetNs({ name: "isk-none" }),
    (error) => isKernelError(error, "not-found"),
  );
  assert.throws(
    () => openNetNs({ path: "/etc/hostname" }),
    (error) => isKernelError(error, "invalid"),
  );
});
