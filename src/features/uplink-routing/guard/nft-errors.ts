import { NftError } from "#kernel/nft";

/** The named object does not exist. */
export function isNftNotFound(error: unknown): boolean {
  return error instanceof NftError && error.code === "not-found";
}
