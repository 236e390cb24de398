import assert from "node:assert/strict";
import { test } from "node:test";
import { CniFailure } from "#features/cni";
import { EgressClientError, type EgressClientErrorCode } from "#features/egress";
import { clientCalls } from "./client-calls.ts";

const POD = { namespace: "default", name: "a", uid: "1" };
const ADD = { pod: POD, netns: "/run/netns/a", ifname: "eth0", ipv4: undefined, ipv6: undefined };
const { signal } = new AbortController();

test("clientCalls: each failure of a client has its code for the runtime, with the same text and cause; another error stays", async () => {
  const codes: readonly (readonly [EgressClientErrorCode, number])[] = [
    ["refused", 11],
    ["try-again", 11],
    ["not-ready", 11],
    ["incomplete", 999],
  ];
  const cause = new Error("no route");
  for (const [code, expected] of codes) {
    const fail = async (): Promise<never> => {
      throw new EgressClientError(code, "the pod's way to its Egress: no route", { cause });
    };
    const calls = clientCalls({ setUp: fail, check: fail }) ?? assert.fail();
    for (const call of [calls.setUp(ADD, { signal }), calls.check(POD, { signal })])
      await assert.rejects(call, (error: unknown) => {
        assert.ok(error instanceof CniFailure);
        assert.deepEqual(
          [error.detail.code, error.message, error.cause],
          [expected, "the pod's way to its Egress: no route", cause],
        );
        return true;
      });
  }
  const bug = async (): Promise<never> => {
    throw new TypeError("a bug");
  };
  await assert.rejects((clientCalls({ setUp: bug, check: bug }) ?? assert.fail()).setUp(ADD, { signal }), TypeError);
  assert.equal(clientCalls(undefined), undefined);
});
