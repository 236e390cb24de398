import assert from "node:assert/strict";
import { test } from "node:test";
import { KernelError } from "#kernel/errors";
import { createAnonymousNetNs } from "#kernel/netns";
import { type Nft, NftError, openNft, printChanges } from "#kernel/nft";
import { type ElementBatch, type NftElements, openNftElements } from "#kernel/nft-elements";
import { overridden } from "#test/overridden";
import { checkConstructs, DataPlaneError } from "./index.ts";

/** The ports of a kernel that lacks what `isMissing` finds in a change. */
function lacking(real: { readonly nft: Nft; readonly elements: NftElements }, isMissing: (change: string) => boolean) {
  const run = (changes: Parameters<Nft["run"]>[0]): void => {
    const script = printChanges(changes);
    if (isMissing(script)) throw new NftError("not-found", "nft refused: No such file or directory", { script });
    real.nft.run(changes);
  };
  const commit = async (batch: ElementBatch): Promise<void> => {
    if (isMissing(JSON.stringify(batch.changes)))
      throw new KernelError("not-found", "Cannot change 1 elements: ENOENT");
    await real.elements.commit(batch);
  };
  return {
    nft: overridden(real.nft, { run }),
    elements: overridden(real.elements, { commit, wantsRecords: true }),
  };
}

const CASES: readonly (readonly [what: string, isMissing: (change: string) => boolean, says: RegExp])[] = [
  [
    "fib",
    (change) => / fib /.test(change),
    /rule "fib daddr type.*; load nft_fib, nft_fib_ipv4 \(modprobe\), or install/,
  ],
  [
    "masquerade",
    (change) => /masquerade/.test(change),
    /rule ".*masquerade fully-random" of chain masquerading; load nft_masq /,
  ],
  [
    "random numbers",
    (change) => /"random"/.test(change),
    /rule ".*numgen random mod 2.*" of chain .*; load nft_numgen, /,
  ],
  ["translation", (change) => /"kind":"dnat"/.test(change), /dnat ip to .* load nft_numgen, nft_nat /],
  [
    "chains of type nat",
    (change) => /type nat/.test(change),
    /chain nat-prerouting, type nat hook prerouting priority -100; load nft_chain_nat/,
  ],
  [
    "intervals of concatenations",
    (change) => /flags interval/.test(change),
    /set .* and flags interval; install a newer kernel/,
  ],
];

test("checkConstructs: this kernel supports every object of the tables of both families", async () => {
  for (const family of [4, 6] as const) {
    using ns = createAnonymousNetNs();
    using nft = openNft(ns);
    using elements = openNftElements(ns);
    await checkConstructs({ nft, elements }, family);
    assert.deepEqual(nft.listTables().length, 1);
  }
});

test("checkConstructs: an unsupported object is named, with the module that it needs", async () => {
  for (const [what, isMissing, says] of CASES) {
    using ns = createAnonymousNetNs();
    using nft = openNft(ns);
    using elements = openNftElements(ns);
    const error: unknown = await checkConstructs(lacking({ nft, elements }, isMissing), 4).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof DataPlaneError, what);
    assert.match(error.message, says, what);
  }
});
