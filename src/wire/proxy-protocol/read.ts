import { IpAddress, unmapped } from "#base/ip";
import { type ProxiedConnection, type ProxyEndpoint, SIGNATURE, TCP_OVER_IPV4, TCP_OVER_IPV6 } from "./layout.ts";

/** The longest line of version 1, with its CRLF. */
const MAX_LINE_BYTES = 107;
/** Signature, version and command, family, length. */
const FIXED_BYTES = 16;
/** The largest accepted body after the fixed header. Addresses take 36 bytes at most; the rest are TLVs, which are not read. */
const MAX_BODY_BYTES = 4096;
const LINE_START = Buffer.from("PROXY ");

/** The progress of reading a header. */
export type HeaderProgress =
  | { readonly kind: "more" }
  /** `connection` is `undefined` if the sender speaks for itself (LOCAL), or does not know the client (UNKNOWN). `rest` comes after the header. */
  | { readonly kind: "header"; readonly connection: ProxiedConnection | undefined; readonly rest: Buffer }
  | { readonly kind: "fault"; readonly reason: string };

/** Reads one header, of version 1 or 2, from bytes that come in pieces. Holds 4,112 bytes at most, besides the piece that ends it. */
export class ProxyHeaderReader {
  #bytes = Buffer.alloc(0);

  /** Takes the next piece. Not to be called again after a header or a fault. */
  push(piece: Uint8Array): HeaderProgress {
    this.#bytes = this.#bytes.length === 0 ? Buffer.from(piece) : Buffer.concat([this.#bytes, piece]);
    if (startsAs(this.#bytes, SIGNATURE)) return readBinary(this.#bytes);
    if (startsAs(this.#bytes, LINE_START)) return readLine(this.#bytes);
    return fault("the first bytes are no PROXY header");
  }
}

const MORE: HeaderProgress = { kind: "more" };

function fault(reason: string): HeaderProgress {
  return { kind: "fault", reason };
}

/** True if the bytes, as many as there are, are those of `start`. */
function startsAs(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

function readLine(bytes: Buffer): HeaderProgress {
  const end = bytes.subarray(0, MAX_LINE_BYTES).indexOf("\r\n");
  if (end === -1)
    return bytes.length < MAX_LINE_BYTES ? MORE : fault(`the line does not end within ${MAX_LINE_BYTES} bytes`);
  const rest = bytes.subarray(end + 2);
  const [, protocol, ...fields] = bytes.toString("latin1", 0, end).split(" ");
  if (protocol === "UNKNOWN") return { kind: "header", connection: undefined, rest };
  if (protocol !== "TCP4" && protocol !== "TCP6") return fault("the protocol is not TCP4, TCP6 or UNKNOWN");
  const [from, to, fromPort, toPort, ...more] = fields;
  const family = protocol === "TCP4" ? 4 : 6;
  const source = endpointOf(from, fromPort, family);
  const destination = endpointOf(to, toPort, family);
  if (source === undefined || destination === undefined || more.length > 0)
    return fault(`the line has not two addresses and ports of ${protocol}`);
  return { kind: "header", connection: { source, destination }, rest };
}

function endpointOf(text = "", portText = "", family: 4 | 6): ProxyEndpoint | undefined {
  const address = IpAddress.tryParse(text);
  const port = Number(portText);
  const isPort = Number.isInteger(port) && port >= 0 && port <= 65_535 && String(port) === portText;
  return address?.family === family && isPort ? { address: unmapped(address), port } : undefined;
}

function readBinary(bytes: Buffer): HeaderProgress {
  const [version, command] = [(bytes[12] ?? 0x20) >> 4, (bytes[12] ?? 0) & 0xf];
  if (version !== 2) return fault(`the version is ${version}, not 2`);
  if (command > 1) return fault(`command ${command} is unknown`);
  if (bytes.length < FIXED_BYTES) return MORE;
  const length = bytes.readUInt16BE(14);
  if (length > MAX_BODY_BYTES) return fault(`the header has ${length} bytes, more than ${MAX_BODY_BYTES}`);
  if (bytes.length < FIXED_BYTES + length) return MORE;
  const rest = bytes.subarray(FIXED_BYTES + length);
  // The family of LOCAL has no meaning.
  const family = command === 0 ? 0 : (bytes[13] ?? 0);
  if (family === 0) return { kind: "header", connection: undefined, rest };
  if (family !== TCP_OVER_IPV4 && family !== TCP_OVER_IPV6) return fault("the client's connection is not TCP over IP");
  const size = family === TCP_OVER_IPV4 ? 4 : 16;
  if (length < 2 * size + 4) return fault(`${length} bytes are too few for the addresses`);
  const body = bytes.subarray(FIXED_BYTES, FIXED_BYTES + length);
  const endpoint = (at: 0 | 1): ProxyEndpoint => ({
    address: unmapped(IpAddress.fromBytes(body.subarray(at * size, (at + 1) * size))),
    port: body.readUInt16BE(2 * size + 2 * at),
  });
  return { kind: "header", connection: { source: endpoint(0), destination: endpoint(1) }, rest };
}
