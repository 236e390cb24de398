import { after, before } from "node:test";
import { openKernel } from "#kernel/net";
import { type Nft, openNft } from "#kernel/nft";
import { type NftElements, openNftElements } from "#kernel/nft-elements";

interface Tables {
  readonly nft: Nft;
  readonly elements: NftElements;
}

/** A namespace for the tests of one file, with its nftables while they run. */
export function oneNetNs(name: string): { readonly tables: Tables } {
  const kernel = openKernel();
  let tables: Tables | undefined;
  before(() => {
    using netns = kernel.createNetNs(name);
    tables = { nft: openNft(netns), elements: openNftElements(netns) };
  });
  after(() => {
    tables?.nft[Symbol.dispose]();
    tables?.elements[Symbol.dispose]();
    kernel.deleteNetNs(name);
  });
  return {
    get tables() {
      if (tables === undefined) throw new Error("oneNetNs: its tables exist only while a test runs");
      return tables;
    },
  };
}
