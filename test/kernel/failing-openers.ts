/**
 * Opens things of the kernel that cannot be opened, for want of descriptors and for other reasons; prints which of them leave descriptors behind, and
 * how each ends. Runs in a mount namespace of its own, with a low limit of descriptors.
 */
import { closeSync, openSync, readdirSync } from "node:fs";
import { openConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { C, mount, unmount } from "#kernel/ffi";
import { openKernel } from "#kernel/net";
import { NETLINK, NetlinkConnection } from "#kernel/netlink";
import { createAnonymousNetNs, inNetNs, openNetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";
import { openNftElements, openNftWriters } from "#kernel/nft-elements";

const ns = createAnonymousNetNs();
const notNetNs = { fd: openSync("/dev/null", "r") };
const closed = { fd: 1_000_000 };

type Opener = () => Partial<Disposable> | undefined;
const OPENERS: Readonly<Record<string, Opener>> = {
  openNft: () => openNft(ns),
  openNetNs: () => openNetNs("own"),
  createAnonymousNetNs: () => createAnonymousNetNs(),
  inNetNs: () => inNetNs(ns, () => undefined),
  NetlinkConnection: () => NetlinkConnection.open(ns, NETLINK.ROUTE),
  openConntrack: () => openConntrack(ns),
  openNftElements: () => openNftElements(ns),
  openNftWriters: () => openNftWriters(ns),
  openStack: () => openKernel().openStack(ns),
};
/** More descriptors than one of them needs at once. */
const MAX_NEEDED = 12;

const leaks: string[] = [];
const ends = new Set<string>();

function tryOne(name: string, open: Opener): void {
  let end = "opened";
  try {
    open()?.[Symbol.dispose]?.();
  } catch (error) {
    end = error instanceof KernelError ? (error.errno ?? error.code) : String(error);
  }
  ends.add(`${name}: ${end}`);
}

const countOpen = (): number => readdirSync("/proc/self/fd").length;

function check(name: string, work: () => void): void {
  const before = countOpen();
  work();
  const left = countOpen() - before;
  if (left !== 0) leaks.push(`${name}: ${left}`);
}

// What is opened lazily, such as libraries, is open after this.
for (const [name, open] of Object.entries(OPENERS)) tryOne(name, open);
for (const [name, open] of Object.entries(OPENERS)) {
  for (let free = 0; free <= MAX_NEEDED; free += 1) {
    check(`${name} with ${free} free descriptors`, () => {
      const held = fill();
      for (const one of held.splice(0, free)) closeSync(one);
      tryOne(name, open);
      for (const one of held) closeSync(one);
    });
  }
}
for (const [what, bad] of Object.entries({ notNetNs, closed })) {
  check(`openNft of ${what}`, () => tryOne(what, () => openNft(bad)));
  check(`inNetNs of ${what}`, () => tryOne(what, () => inNetNs(bad, () => undefined)));
}
using named = openNetNs("own");
check("openNetNs without /proc", () => {
  const path = "/run/isthmus-own-netns";
  closeSync(openSync(path, "w"));
  mount(`/proc/self/fd/${named.fd}`, path, "none", C.MS_BIND);
  unmount("/proc", C.MNT_DETACH);
  tryOne("without /proc", () => openNetNs({ path }));
  mount("proc", "/proc", "proc", 0);
});
process.stdout.write(JSON.stringify({ leaks, ends: [...ends].sort() }));

/** Opens files until there is no free descriptor. */
function fill(): number[] {
  const held: number[] = [];
  for (;;) {
    try {
      held.push(openSync("/dev/null", "r"));
    } catch {
      return held;
    }
  }
}
