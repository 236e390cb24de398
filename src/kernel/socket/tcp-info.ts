import type { TransportState } from "#base/byte-stream";
import { getsockoptBytes } from "#kernel/ffi";

/** include/uapi/linux/in.h and tcp.h. */
const IPPROTO_TCP = 6;
const TCP_INFO = 11;
/** include/uapi/asm-generic/socket.h. */
const SOL_SOCKET = 1;
const SO_MEMINFO = 55;
/** Offsets in struct tcp_info of include/uapi/linux/tcp.h, which only ever grows at its end. */
const AT = {
  retransmits: 2,
  probes: 3,
  unacked: 24,
  sacked: 28,
  lastDataRecv: 52,
  lastAckRecv: 56,
  rtt: 68,
  totalRetrans: 100,
  bytesAcked: 120,
  bytesReceived: 128,
  notsentBytes: 144,
} as const;
/** Bytes that are read: up to `tcpi_notsent_bytes` (Linux 4.6). */
const SIZE = 148;

/** State of a TCP connection in the kernel. */
export interface TcpInfo {
  /** Attempts at the segment that is being retransmitted. */
  readonly retransmits: number;
  /** Unanswered probes (keepalive, zero window). */
  readonly probes: number;
  /** Segments in flight. */
  readonly unacked: number;
  /** Segments that the peer has received behind one that is missing. */
  readonly sacked: number;
  /** Time since the last data was received, in milliseconds. */
  readonly lastDataRecvMs: number;
  /** Time since the last acknowledgement was received, in milliseconds. */
  readonly lastAckRecvMs: number;
  /** Smoothed round-trip time, in microseconds; 0 before the first measurement. */
  readonly rttUs: number;
  readonly totalRetransmits: number;
  /** The total since the connection was established. */
  readonly bytesAcked: number;
  readonly bytesReceived: number;
  /** Bytes in the queue that were never sent. */
  readonly notSentBytes: number;
}

const buffer = Buffer.alloc(SIZE);

/** TCP_INFO of a connected socket. Throws {@link KernelError}. */
export function tcpInfo(fd: number): TcpInfo {
  const length = getsockoptBytes(fd, IPPROTO_TCP, TCP_INFO, buffer);
  return decodeTcpInfo(buffer.subarray(0, length));
}

/** Decodes TCP_INFO. Fields that an older kernel lacks are 0. */
export function decodeTcpInfo(bytes: Buffer): TcpInfo {
  const u32 = (at: number): number => (bytes.length >= at + 4 ? bytes.readUInt32LE(at) : 0);
  const u64 = (at: number): number => (bytes.length >= at + 8 ? Number(bytes.readBigUInt64LE(at)) : 0);
  return {
    retransmits: bytes[AT.retransmits] ?? 0,
    probes: bytes[AT.probes] ?? 0,
    unacked: u32(AT.unacked),
    sacked: u32(AT.sacked),
    lastDataRecvMs: u32(AT.lastDataRecv),
    lastAckRecvMs: u32(AT.lastAckRecv),
    rttUs: u32(AT.rtt),
    totalRetransmits: u32(AT.totalRetrans),
    bytesAcked: u64(AT.bytesAcked),
    bytesReceived: u64(AT.bytesReceived),
    notSentBytes: u32(AT.notsentBytes),
  };
}

const memory = Buffer.alloc(4);

/**
 * Returns true if the kernel holds bytes of the peer (SO_MEMINFO, Linux 4.12: `SK_MEMINFO_RMEM_ALLOC`): unread ones, or ones that arrived behind a
 * missing segment. Throws {@link KernelError}.
 */
export function holdsReceivedBytes(fd: number): boolean {
  return getsockoptBytes(fd, SOL_SOCKET, SO_MEMINFO, memory) >= memory.length && memory.readUInt32LE(0) > 0;
}

/** {@link tcpInfo} for streams. Throws {@link KernelError}. */
export function transportState(fd: number): TransportState {
  const { unacked, sacked, probes, bytesAcked, lastAckRecvMs, lastDataRecvMs, rttUs } = tcpInfo(fd);
  const heardMs = Math.min(lastAckRecvMs, lastDataRecvMs);
  return { unacked, sacked, probes, ackedBytes: bytesAcked, heardMs, rttMs: rttUs === 0 ? undefined : rttUs / 1000 };
}
