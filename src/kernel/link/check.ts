import { KernelError } from "#kernel/errors";
import { DELETION_GROUPS } from "./constants.ts";
import type { LinkChange, LinkSpec } from "./types.ts";

/** IFNAMSIZ without the NUL. */
const MAX_NAME_BYTES = 15;
/** IFALIASZ without the NUL. */
const MAX_ALIAS_BYTES = 255;

/** Refuses the same names as the kernel's dev_valid_name, with the reason. Throws {@link KernelError} `invalid`. */
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
  throw new KernelError("invalid", `Alias "${alias}" is longer than ${MAX_ALIAS_BYTES} bytes or contains a NUL`, {
    errno: "EINVAL",
  });
}

/** Checks names and aliases of a link to make. */
export function checkSpec(spec: LinkSpec): void {
  checkLinkName(spec.name);
  if (spec.alias !== undefined) checkAlias(spec.alias);
  if (spec.kind === "veth") checkLinkName(spec.peer.name);
  if (spec.kind === "tun" && spec.netns !== undefined) {
    throw new KernelError(
      "invalid",
      `Cannot make tun link ${spec.name} in another namespace: open the stack of that namespace`,
    );
  }
}

/** Checks a change. */
export function checkChange(change: LinkChange): void {
  if (change.name !== undefined) checkLinkName(change.name);
  if (change.alias !== undefined) checkAlias(change.alias);
  if (change.group !== undefined) checkGroup(change.group);
}

/** Throws {@link KernelError} `invalid` for a number that is not a group, or a group that is used for deletions. */
export function checkGroup(group: number): void {
  const { first, count } = DELETION_GROUPS;
  const isFree = group < first || group >= first + count;
  if (Number.isInteger(group) && group >= 0 && group <= 0x7fff_ffff && isFree) return;
  throw new KernelError(
    "invalid",
    `${group} cannot be a link's group: use 0 to 2147483647, except the groups used for deletions`,
    {
      errno: "EINVAL",
    },
  );
}
