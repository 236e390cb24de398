import { after } from "node:test";
import { kernelContract, nftContract } from "#kernel/contract";
import { loadModules } from "#kernel/modules";
import { openKernel } from "#kernel/net";
import { createNetNs, deleteNetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";

await loadModules(["fou", "fou6"]);
// The same suites as in the netns tier and on the fake, on a kernel that has every feature.
kernelContract({ label: "real 6.1", kernel: openKernel() });

const NAME = `isk-vm-nft-${process.pid}`;
const namespace = createNetNs(NAME);
after(() => {
  namespace[Symbol.dispose]();
  deleteNetNs(NAME);
});
nftContract("real 6.1", () => openNft(namespace));
