import assert from "node:assert/strict";
import { test } from "node:test";
import { sleep } from "#base/async";
import type { LinkKind } from "#kernel/link";
import { isKernelError, type Kernel, type KernelErrorCode, type NetNs, type NetStack } from "#kernel/net";

/** The kernel that a contract suite is run against. */
export interface ContractTarget {
  /** Goes before the names of the tests: `real`, `fake`. */
  readonly label: string;
  readonly kernel: Kernel;
  /** The features of this kernel; tests of other features are not registered. Default: all. */
  readonly has?: (feature: LinkKind | "fou" | "encap") => boolean;
}

/** Two namespaces with their stacks, removed at the end of the test. */
export interface Fixture {
  readonly kernel: Kernel;
  readonly a: NetStack;
  readonly b: NetStack;
  readonly nsA: NetNs;
  readonly nsB: NetNs;
}

let serial = 0;

/** Registers one test of a contract. */
export function contractTest(
  target: ContractTarget,
  name: string,
  work: (fixture: Fixture) => void | Promise<void>,
): void {
  test(`${target.label}: ${name}`, async () => {
    serial += 1;
    const names = [`isk-${process.pid}-${serial}a`, `isk-${process.pid}-${serial}b`] as const;
    const { kernel } = target;
    using nsA = kernel.createNetNs(names[0]);
    try {
      using nsB = kernel.createNetNs(names[1]);
      try {
        using a = kernel.openStack(nsA);
        using b = kernel.openStack(nsB);
        await work({ kernel, a, b, nsA, nsB });
      } finally {
        kernel.deleteNetNs(names[1]);
      }
    } finally {
      kernel.deleteNetNs(names[0]);
    }
  });
}

/** Asserts that `work` throws a {@link KernelError} with one of `codes`. */
export function refused(work: () => unknown, ...codes: readonly KernelErrorCode[]): void {
  assert.throws(work, (error) => {
    assert.ok(isKernelError(error), `not a KernelError: ${error}`);
    assert.ok(codes.includes(error.code), `${error.code}, not ${codes.join(" or ")}: ${error.message}`);
    return true;
  });
}

/** A veth between the two namespaces, both ends up; returns the index in `a` and in `b`. */
export function vethPair({ a, b, nsB }: Fixture): { readonly left: number; readonly right: number } {
  const left = a.links.create({ kind: "veth", name: "left", up: true, peer: { name: "right", netns: nsB, up: true } });
  const right = b.links.get({ name: "right" });
  assert.ok(right !== undefined, "the peer is in the other namespace");
  return { left: left.index, right: right.index };
}

/** Polls until `look` returns a value; fails after five seconds. */
export async function eventually<T>(look: () => T | undefined): Promise<T> {
  const end = performance.now() + 5000;
  for (;;) {
    const found = look();
    if (found !== undefined) return found;
    assert.ok(performance.now() < end, "not seen within five seconds");
    await sleep(1);
  }
}
