import { ByteReader } from "./byte-reader.ts";

/** The parts of a ClientHello that a proxy uses (RFC 8446 section 4.1.2). */
export interface ClientHello {
  /**
   * The host name of the server_name extension as it was sent: 1 to 255 characters of printable ASCII. With Encrypted Client
   * Hello it is the outer, public name. Absent when the client sent none, as it does for IP addresses.
   */
  readonly serverName?: string;
  /** The protocols of the ALPN extension in the client's order, as Latin-1: each character is one byte. */
  readonly alpn: readonly string[];
  /** Present if application data follows the hello (RFC 8446 section 4.2.10): sending that twice could have its effect twice. */
  readonly hasEarlyData?: true;
}

/** RFC 6066 section 3. */
const EXTENSION_SERVER_NAME = 0;
/** RFC 7301 section 3.1. */
const EXTENSION_ALPN = 16;
/** RFC 8446 section 4.2. */
const EXTENSION_EARLY_DATA = 42;
const NAME_TYPE_HOST = 0;

/** The parsed body of a ClientHello message, or the reason why it is invalid. Refuses what a server would refuse or read in another way. */
export function parseClientHello(body: Uint8Array): ClientHello | string {
  const reader = new ByteReader(body);
  const versionMajor = reader.number(1);
  reader.take(1 + 32);
  const session = reader.vector(1).rest();
  const ciphers = reader.vector(2).rest();
  const compressions = reader.vector(1).rest();
  if (reader.failed) return "the ClientHello is cut short";
  if (versionMajor !== 3) return "the ClientHello has an unknown TLS version";
  if (session.length > 32 || ciphers.length < 2 || ciphers.length % 2 !== 0 || compressions.length === 0) {
    return "the ClientHello has lists of impossible lengths";
  }
  // TLS 1.2 and earlier allow a hello without extensions.
  if (reader.isAtEnd) return { alpn: [] };
  const extensions = reader.vector(2);
  if (reader.failed || !reader.isAtEnd) return "the extensions do not fill the ClientHello";
  return parseExtensions(extensions);
}

function parseExtensions(reader: ByteReader): ClientHello | string {
  const seen = new Set<number>();
  let hello: ClientHello = { alpn: [] };
  while (!reader.isAtEnd) {
    const type = reader.number(2);
    const data = reader.vector(2);
    // With two extensions of one type the route and the server could use different names.
    if (seen.has(type)) return "the ClientHello has an extension twice";
    seen.add(type);
    if (reader.failed) break;
    if (type === EXTENSION_SERVER_NAME) {
      const serverName = parseServerName(data);
      if (serverName === undefined) return "the server_name extension is malformed";
      hello = { ...hello, serverName };
    }
    if (type === EXTENSION_ALPN) {
      const alpn = parseAlpn(data);
      if (alpn === undefined) return "the ALPN extension is malformed";
      hello = { ...hello, alpn };
    }
    if (type === EXTENSION_EARLY_DATA) hello = { ...hello, hasEarlyData: true };
  }
  return reader.failed ? "an extension is cut short" : hello;
}

/** The one host name; names of other types are skipped. */
function parseServerName(data: ByteReader): string | undefined {
  const list = data.vector(2);
  let name: string | undefined;
  while (!list.isAtEnd) {
    const type = list.number(1);
    const bytes = list.vector(2).rest();
    if (type !== NAME_TYPE_HOST) continue;
    if (name !== undefined || bytes.length === 0 || bytes.length > 255) return undefined;
    name = Buffer.from(bytes).toString("latin1");
  }
  const isWhole = !data.failed && data.isAtEnd && !list.failed;
  return isWhole && name !== undefined && /^[!-~]+$/.test(name) ? name : undefined;
}

function parseAlpn(data: ByteReader): string[] | undefined {
  const list = data.vector(2);
  const names: string[] = [];
  while (!list.isAtEnd) {
    const bytes = list.vector(1).rest();
    if (bytes.length === 0) return undefined;
    names.push(Buffer.from(bytes).toString("latin1"));
  }
  return data.failed || !data.isAtEnd || list.failed || names.length === 0 ? undefined : names;
}
