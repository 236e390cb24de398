/** The process of a `FarLine`: passes packets on between two TUN devices, each after the delay, and loses some. */
import { readSync, writeSync } from "node:fs";
import { C, ioctl, open } from "#kernel/ffi";
import { inNetNs, openNetNs } from "#kernel/netns";
import { DescriptorWatch } from "#kernel/reactor";
import { LINE_IFNAME } from "./far-line.ts";
import { seeded } from "./seeded.ts";

/** include/uapi/linux/if_tun.h */
const TUNSETIFF = 0x400454ca;
const IFF_TUN_NO_PI = 0x1001;
/** Packets that are read from one end before the other gets its turn. */
const TURN = 64;

function attach(path: string): number {
  using netns = openNetNs({ path });
  return inNetNs(netns, () => {
    const fd = open("/dev/net/tun", C.O_RDWR | C.O_NONBLOCK);
    const request = Buffer.alloc(40);
    request.write(LINE_IFNAME);
    request.writeUInt16LE(IFF_TUN_NO_PI, 16);
    ioctl(fd, TUNSETIFF, request, "attach the line");
    return fd;
  });
}

const delayMs = Number(process.env["LINE_DELAY_MS"]);
const loss = Number(process.env["LINE_LOSS"]);
const random = seeded(1);
const scratch = Buffer.alloc(65_536);

function isAgain(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EAGAIN";
}

function relay(from: number, to: number): void {
  let waiting: { readonly at: number; readonly packet: Buffer }[] = [];
  let timer: NodeJS.Timeout | undefined;
  const deliver = (): void => {
    timer = undefined;
    const now = performance.now() + 0.5;
    let sent = 0;
    for (; sent < waiting.length && (waiting[sent]?.at ?? 0) <= now; sent += 1) {
      try {
        writeSync(to, waiting[sent]?.packet ?? scratch);
      } catch (error) {
        // The kernel has no room: the packet is lost, as on any line.
        if (!isAgain(error)) throw error;
      }
    }
    waiting = waiting.slice(sent);
    schedule();
  };
  const schedule = (): void => {
    const next = waiting[0];
    if (next === undefined || timer !== undefined) return;
    timer = setTimeout(deliver, Math.max(0, next.at - performance.now()));
  };
  new DescriptorWatch(from, () => {
    for (let read = 0; read < TURN; read += 1) {
      let length = 0;
      try {
        length = readSync(from, scratch);
      } catch (error) {
        if (!isAgain(error)) throw error;
        break;
      }
      if (random() < loss) continue;
      waiting.push({ at: performance.now() + delayMs, packet: Buffer.from(scratch.subarray(0, length)) });
    }
    schedule();
  });
}

const [near = "", far = ""] = (process.env["LINE_ENDS"] ?? "").split(" ");
const ends = [attach(near), attach(far)] as const;
relay(ends[0], ends[1]);
relay(ends[1], ends[0]);
// The watches alone do not keep the process.
setInterval(() => undefined, 60_000);
process.once("disconnect", () => process.exit());
process.send?.("open");
