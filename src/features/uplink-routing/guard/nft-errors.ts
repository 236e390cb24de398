import { NftError } from "#kernel/nft";

/** Returns true if the error says that the named object does not exist. */
export function isNftNotFound(error: unknown): boolean {
  return error instanceof NftError && error.code === "not-found";
}
