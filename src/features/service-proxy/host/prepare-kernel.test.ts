import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import type { ConntrackSettings } from "./kernel-parameters.ts";
import { prepareKernel } from "./prepare-kernel.ts";

const SETTINGS: ConntrackSettings = {
  maxPerCore: 0,
  min: 131_072,
  tcpEstablishedSeconds: 86_400,
  tcpCloseWaitSeconds: 3600,
  tcpBeLiberal: false,
  udpSeconds: 0,
  udpStreamSeconds: 0,
};
const PREFIX = "net.netfilter.nf_conntrack_tcp_timeout_";
const SET = [`${PREFIX}established=86400`, `${PREFIX}close_wait=3600`];

/** A kernel that has the keys of connection tracking once its module is loaded. */
function freshKernel() {
  const lines: string[] = [];
  const state = { isLoaded: false, writes: [] as string[], lines };
  const check = (key: string): void => {
    if (!state.isLoaded) throw new KernelError("not-found", `Cannot read sysctl ${key}: no such file`);
  };
  return {
    state,
    log: createLogger({ name: "t", write: (line) => void lines.push(line) }),
    sysctl: {
      get: (key: string) => {
        check(key);
        return "0";
      },
      set: (key: string, value: string | number) => {
        check(key);
        state.writes.push(`${key}=${value}`);
      },
    },
  };
}

test("prepareKernel: on a fresh boot the trial of the features loads connection tracking, and its parameters are set after it", async () => {
  const { state, sysctl, log } = freshKernel();
  const tryFeatures = async (): Promise<void> => {
    state.isLoaded = true;
  };
  const again = await prepareKernel({ sysctl, tryFeatures }, SETTINGS, { log });
  assert.equal(again, undefined);
  assert.deepEqual([state.writes, state.lines], [SET, []]);
});

test("prepareKernel: where nothing can be tried, the parameters are set once the tables have loaded connection tracking", async () => {
  const { state, sysctl, log } = freshKernel();
  const again = await prepareKernel({ sysctl, tryFeatures: async () => undefined }, SETTINGS, { log });
  assert.deepEqual([state.writes, state.lines], [[], []]);
  state.isLoaded = true;
  again?.();
  assert.deepEqual([state.writes, state.lines], [SET, []]);
});

test("prepareKernel: a parameter that this kernel never has is logged then", async () => {
  const { state, sysctl, log } = freshKernel();
  const again = await prepareKernel({ sysctl, tryFeatures: async () => undefined }, SETTINGS, { log });
  again?.();
  assert.equal(state.lines.length, 2);
  assert.match(state.lines[0] ?? "", /timeout_established.*could not be set and keeps its value/);
});

test("prepareKernel: a kernel that lacks a feature is not changed", async () => {
  const { state, sysctl, log } = freshKernel();
  state.isLoaded = true;
  const refused = new KernelError("invalid", "no such feature");
  const tryFeatures = (): Promise<void> => Promise.reject(refused);
  await assert.rejects(prepareKernel({ sysctl, tryFeatures }, SETTINGS, { log }), refused);
  assert.deepEqual(state.writes, []);
});
