/**
 * Loaded into a shipped program before its own modules (`writes.ts`): counts what the program writes into the kernel, and kills it after the
 * write whose number a file names. So a test can end it after each single step.
 *
 * Owns: nothing. Writes are changes by netlink, commands of libnftables, and settings below /proc/sys. Does not know: what they mean.
 */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { pathToFileURL } from "node:url";
import type { WritesOrder } from "./writes.ts";

type Native = ((...args: readonly unknown[]) => unknown) & { async: (...args: readonly unknown[]) => void };

const { ISTHMUS_WRITES_FILE: file = "", ISTHMUS_WRITES_KOFFI: koffiFile = "" } = process.env;
const { readFileSync, appendFileSync, writeFileSync } = fs;
/** Messages of rtnetlink have numbers below this; the third of each group of four only reads. */
const ROUTE_LIMIT = 256;
const GET = 2;
const CT_GET = 257;
/** The subsystem of nftables, and its messages that only read (linux/netfilter/nfnetlink.h, nf_tables.h). */
const NFTABLES = 10;
const NFT_GETS = new Set([1, 4, 7, 10, 13, 16, 19, 23]);
const NEW_LINK = 16;
/** NLM_F_CREATE of linux/netlink.h. */
const CREATE = 0x400;

/** `undefined` while nobody watches. */
function readOrder(): WritesOrder | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as WritesOrder;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function wrote(what: string): void {
  const order = readOrder();
  if (order === undefined) return;
  const { run, killAfter } = order;
  const log = `${file}.${run}`;
  appendFileSync(log, `${what}\n`);
  const count = readFileSync(log, "utf8").split("\n").length - 1;
  if (killAfter !== undefined && count >= killAfter) process.kill(process.pid, "SIGKILL");
}

/** Returns the change by a datagram of netlink; `undefined` for requests that read, and for other data. */
function changeOf(data: unknown): string | undefined {
  if (!(data instanceof Uint8Array) || data.length < 16) return undefined;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const [length, type, flags] = [view.getUint32(0, true), view.getUint16(4, true), view.getUint16(6, true)];
  if (length < 16 || length > data.length || type < 16) return undefined;
  // RTM_NEWLINK, or with other flags the request for the number of a family of generic netlink.
  if (type === NEW_LINK && (flags & CREATE) === 0) return undefined;
  if (type === CT_GET || (type < ROUTE_LIMIT && type % 4 === GET)) return undefined;
  if (type >> 8 === NFTABLES && NFT_GETS.has(type & 0xff)) return undefined;
  return `netlink ${type}`;
}

const WRAPPED: Readonly<Record<string, (args: readonly unknown[]) => string | undefined>> = {
  sendto: ([, data]) => changeOf(data),
  nft_run_cmd_from_buffer: ([, text]) =>
    /^(list|reset)\b/.test(String(text)) ? undefined : `nft ${String(text).split("\n")[0]}`,
};

function wrap(name: string, native: Native): Native {
  const describe = WRAPPED[name];
  if (describe === undefined) return native;
  const called = (...args: readonly unknown[]): unknown => {
    const result = native(...args);
    const what = describe(args);
    if (what !== undefined) wrote(what);
    return result;
  };
  const async = (...args: readonly unknown[]): void => {
    const [done, ...rest] = [...args].reverse();
    native.async(...rest.reverse(), (...outcome: readonly unknown[]) => {
      const what = describe(args);
      if (what !== undefined) wrote(what);
      (done as (...all: readonly unknown[]) => void)(...outcome);
    });
  };
  return Object.assign(called, { async });
}

const { default: koffi } = (await import(String(pathToFileURL(koffiFile)))) as {
  readonly default: { load: (name: unknown) => { func: (prototype: string) => Native } };
};
const load = koffi.load;
koffi.load = (name) => {
  const library = load(name);
  const func = library.func.bind(library);
  return new Proxy(library, {
    get: (target, key) =>
      key === "func"
        ? (prototype: string) => wrap(/(\w+)\(/.exec(prototype)?.[1] ?? "", func(prototype))
        : (Reflect.get(target, key) as unknown),
  });
};
fs.writeFileSync = (...args: Parameters<typeof writeFileSync>): void => {
  writeFileSync(...args);
  if (String(args[0]).startsWith("/proc/sys/")) wrote(`set ${args[0]}`);
};
syncBuiltinESMExports();
