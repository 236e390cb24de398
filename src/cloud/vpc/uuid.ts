import { createHash } from "node:crypto";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** The namespace of names whose own is no UUID, such as the uid of a static pod. */
const OTHER = "6f1d8c1e-5b0a-4f0c-9b57-2f1f6f6e8a11";

/** Returns true if a text has the form of a UUID. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/** The UUID of version 5 (RFC 9562, section 5.5) of a name in a namespace: the same for the same input, everywhere. */
export function uuidV5(namespace: string, name: string): string {
  const isOwn = isUuid(namespace);
  const hash = createHash("sha1")
    .update(Buffer.from((isOwn ? namespace : OTHER).replaceAll("-", ""), "hex"))
    .update(isOwn ? name : `${namespace}/${name}`)
    .digest();
  hash.writeUInt8((hash.readUInt8(6) & 0x0f) | 0x50, 6);
  hash.writeUInt8((hash.readUInt8(8) & 0x3f) | 0x80, 8);
  return hash.toString("hex", 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
