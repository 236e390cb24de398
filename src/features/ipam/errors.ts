import { ExpectedError } from "#base/errors";

/**
 * - `exhausted`: the pool has no free block, and this node's blocks are full.
 * - `pool-not-found`, `node-not-found`: the object that a request names does not exist.
 * - `pool-deleting`: the pool is being deleted and gives no more blocks; this node's blocks are full.
 * - `invalid-pool`: the pool's spec cannot be used.
 * - `unreadable`: a link of this node has addresses of the pool that cannot be read, so any free address may be in use.
 * - `lost`: the attachment has addresses already, of a block that does not belong to this node any more.
 * - `block-timeout`: no controller answered the request for a block in time.
 * - `api-unavailable`: the API server refused or could not be reached.
 */
export type IpamErrorCode =
  | "exhausted"
  | "pool-not-found"
  | "pool-deleting"
  | "invalid-pool"
  | "node-not-found"
  | "unreadable"
  | "lost"
  | "block-timeout"
  | "api-unavailable";

/** The node cannot get an address or a block. The message names the pool. Nothing was changed. */
export class IpamError extends ExpectedError<IpamErrorCode> {
  override readonly name = "IpamError";
}
