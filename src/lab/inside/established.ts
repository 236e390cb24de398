import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { IpAddress } from "#base/ip";

/** ESTABLISHED of include/net/tcp_states.h, as /proc shows it. */
const ESTABLISHED = "01";

/** A socket that is connected, as /proc/net/tcp shows it. */
export interface EstablishedSocket {
  readonly inode: string;
  readonly remote: IpAddress;
  readonly remotePort: number;
}

/** The TCP connections in the network namespace of a process; none when it has ended. */
export function establishedIn(pid: number): readonly EstablishedSocket[] {
  return ["tcp", "tcp6"].flatMap((table) => parseTcpTable(readIfThere(`/proc/${pid}/net/${table}`)));
}

/** The sockets that a process holds, by inode; none when it has ended. */
export function socketsOf(pid: number): ReadonlySet<string> {
  const folder = `/proc/${pid}/fd`;
  const links = ifThere(() => readdirSync(folder), []).map((fd) => ifThere(() => readlinkSync(`${folder}/${fd}`), ""));
  return new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []));
}

/** Pure: the established rows of /proc/net/tcp or tcp6 (Documentation/networking/proc_net_tcp.rst); without other rows. */
export function parseTcpTable(text: string): readonly EstablishedSocket[] {
  return text.split("\n").flatMap((line) => {
    const fields = line.trim().split(/\s+/);
    const remote = /^((?:[0-9A-F]{8}){1,4}):([0-9A-F]{4})$/.exec(fields[2] ?? "");
    const [address, inode] = [addressOf(remote?.[1] ?? ""), fields[9]];
    if (fields[3] !== ESTABLISHED || address === undefined || inode === undefined) return [];
    return [{ inode, remote: address, remotePort: Number.parseInt(remote?.[2] ?? "", 16) }];
  });
}

/** Words of 32 bits, each printed as the machine's number, which is little-endian on all that we run on. */
function addressOf(hex: string): IpAddress | undefined {
  const bytes = Buffer.from(hex, "hex");
  if (bytes.length !== 4 && bytes.length !== 16) return undefined;
  bytes.swap32();
  return IpAddress.fromBytes(bytes);
}

function readIfThere(path: string): string {
  return ifThere(() => readFileSync(path, "utf8"), "");
}

function ifThere<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch (error) {
    if (["ENOENT", "ESRCH", "EINVAL"].includes((error as NodeJS.ErrnoException).code ?? "")) return otherwise;
    throw error;
  }
}
