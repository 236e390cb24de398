import { ExpectedError } from "#base/errors";

/**
 * - `netns-not-found`: the path of the pod's network namespace does not exist.
 * - `own-netns`: the path is that of the node's own network namespace.
 * - `interface-exists`: the pod has an interface of that name that we did not make.
 * - `address-in-use`: the host routes an address to another link.
 * - `no-interface`: the plugin before coil made no interface of that name.
 * - `no-host-side`: the interface of that plugin has no end in the node's namespace.
 * - `mtu-too-small`: the attachment has IPv6 addresses alone, and the MTU of pods is below that of IPv6.
 * - `bad-name`: a name cannot be part of an alias.
 * - `check-failed`: CHECK found something missing.
 */
export type PodNetworkErrorCode =
  | "netns-not-found"
  | "own-netns"
  | "interface-exists"
  | "address-in-use"
  | "no-interface"
  | "no-host-side"
  | "mtu-too-small"
  | "bad-name"
  | "check-failed";

/** An attachment cannot be made, or is not correct. A failed set-up leaves no objects. */
export class PodNetworkError extends ExpectedError<PodNetworkErrorCode> {
  override readonly name = "PodNetworkError";
}
