import { KernelError } from "#kernel/errors";
import type { LinkChange, LinkSpec } from "./types.ts";

/** IFNAMSIZ without the NUL. */
const MAX_NAME_BYTES = 15;
/** IFALIASZ without the NUL. */
const MAX_ALIAS_BYTES = 255;

/** What the kernel's dev_valid_name refuses, with a message that says why. Throws {@link KernelError} `invalid`. */
export function checkLinkName(name: string): void {
  const bytes = Buffer.byteLength(name);
  if (bytes >= 1 && bytes <= MAX_NAME_BYTES && name !== "." && name !== ".." && !/[/:\s\0]/.test(name)) return;
  throw new KernelError(
    "invalid",
    `"${name}" cannot be a link's name: use 1 to ${MAX_NAME_BYTES} bytes without slash, colon or white space`,
    { errno: "EINVAL" },
  );
}

/** Throws {@link KernelError} `invalid` for an alias that the kernel would refuse. */
export function checkAlias(alias: string): void {
  if (Buffer.byteLength(alias) <= MAX_ALIAS_BYTES && !alias.includes("\0")) return;
  throw new KernelError("invalid", `Alias "${alias}" is longer than ${MAX_ALIAS_BYTES} bytes or has a NUL in it`, {
    errno: "EINVAL",
  });
}

/** Checks names and aliases of a link to make. */
export function checkSpec(spec: LinkSpec): void {
  checkLinkName(spec.name);
  if (spec.alias !== undefined) checkAlias(spec.alias);
  if (spec.kind === "veth") checkLinkName(spec.peer.name);
  if (spec.kind === "tun" && spec.netns !== undefined) {
    throw new KernelError("invalid", `Cannot make tun link ${spec.name} in another namespace: open a stack there`);
  }
}

/** Checks a change. */
export function checkChange(change: LinkChange): void {
  if (change.name !== undefined) checkLinkName(change.name);
  if (change.alias !== undefined) checkAlias(change.alias);
}
